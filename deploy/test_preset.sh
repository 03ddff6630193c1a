# shellcheck shell=bash
# Sourced by deploy/test and by tests/house/skips_test.py, in the root of a tree: the tests of one preset, and what is told of
# them.

# Shows ctest's output, and adds to `closing` what was skipped, why, and what needed a second try. Fails, too, where a test was
# skipped for want of something that install_packages installs.
test_preset() {  # test preset, further arguments
  local log="build/$1_ctest.log" junit="$PWD/build/$1_junit.xml" rc=0 told
  rm -f "$junit"
  ctest --preset "$1" --output-junit "$junit" --test-output-size-passed 65536 "${@:2}" 2>&1 | tee "$log" || rc=$?
  if [[ -s $junit ]]; then
    told=$(python3 -B "${BASH_SOURCE[0]%/*}/../tests/tools/test_summary.py" "$log" "$junit") || rc=1
  else
    told="ctest wrote no $junit"
    rc=1
  fi
  closing+="${closing:+$'\n'}$1: $told"
  return "$rc"
}
