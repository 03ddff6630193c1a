# shellcheck shell=bash
# Sourced by deploy/test, in the root of a tree: a part that runs beside the others, on what they leave of the processors.

beside=""     # the part
beside_id=""  # its process, which is its session too

# Starts `deploy/test PART` where memory carries two parts. The kernel serves it last: SCHED_IDLE within a session, and among sessions,
# which Linux may treat as one each, the last place (sched(7), autogroup). It ends with this script.
begin_beside() {  # part
  ((memory_gib >= 4 * cores)) || return 0
  local last=(nice -n 19)
  ! chrt --idle 0 true 2>/dev/null || last=(chrt --idle 0)
  beside=$1
  setsid bash -c '{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec "$@"' - "${last[@]}" deploy/test "$1" >"build/$1.log" 2>&1 &
  beside_id=$!
  trap 'kill -- "-$beside_id" 2>/dev/null || true' EXIT
}

# Waits for it and shows its output from the beginning. Returns its exit code.
await_beside() {
  tail -n +1 -f --pid="$beside_id" "build/$beside.log"
  wait "$beside_id"
}
