#!/bin/sh
# mpirun for tests: ends in time whatever its ranks do, and leaves no files. As root or not, more ranks than cores or not.
# Usage: mpirun_test.sh SECONDS RANKS PROGRAM [ARGUMENT...]
seconds=$1
ranks=$2
shift 2
files=$(mktemp -d) || exit 1
trap 'rm -rf "$files"' EXIT
timeout -k 2 "$seconds" mpirun --allow-run-as-root --oversubscribe --quiet -n "$ranks" \
  --mca orte_tmpdir_base "$files" --mca btl_vader_backing_directory "$files" \
  --mca odls_base_sigkill_timeout 0 --mca mpi_yield_when_idle 1 --mca btl self,vader "$@"
