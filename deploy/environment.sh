# shellcheck shell=bash disable=SC2034
# Sourced by deploy/demo and deploy/test: the root of the tree, and a place for temporary and cached files that works
# where HOME is unset or TMPDIR points nowhere.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit
mkdir -p build

if [[ ! -d ${HOME:-/nonexistent} || ! -w ${HOME:-/nonexistent} ]]; then
  export HOME="$root/build/home"
  mkdir -p "$HOME"
fi
if [[ ! -d ${TMPDIR:-/tmp} || ! -w ${TMPDIR:-/tmp} ]]; then
  export TMPDIR="$root/build/tmp"
  mkdir -p "$TMPDIR"
fi

# One job per core, but no more than memory carries: a file that includes protobuf or Catch2 takes up to 1 GiB.
cores=$(nproc)
memory_gib=$(awk '/MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)
jobs=$((memory_gib < cores ? (memory_gib > 0 ? memory_gib : 1) : cores))
