#!/usr/bin/env bash
# Trains GPT-2 350M on ranks that have 1.5 GB each, where one rank needs 5.5 GiB: the plan says what makes it fit, a
# control group holds every rank to it, and the losses are those of a single rank with all the memory it wants.
#   small_nodes.sh BIN TEXT [STEPS]
# Needs root, control groups of memory and 16 GB; exits with 77 where it cannot run.
set -euo pipefail
bin=$1 text=$2 steps=${3:-2}
limit=1500000000 ranks=8

[[ $(id -u) == 0 ]] || { echo "skipped: control groups need root"; exit 77; }
free=$(awk '/MemAvailable/ {print $2}' /proc/meminfo)
((free > 16 << 20)) || { echo "skipped: $((free >> 20)) GiB of memory are free, 16 are needed"; exit 77; }
if [[ -f /sys/fs/cgroup/cgroup.controllers ]]; then
  root=/sys/fs/cgroup maximum=memory.max peak=memory.peak
  echo +memory > "$root/cgroup.subtree_control" 2>/dev/null || true
else
  root=/sys/fs/cgroup/memory maximum=memory.limit_in_bytes peak=memory.max_usage_in_bytes
fi
work=$(mktemp -d)
groups=()
for ((rank = 0; rank < ranks; ++rank)); do groups+=("$root/trireme-small-$$-$rank"); done
trap 'rmdir "${groups[@]}" 2>/dev/null; rm -rf "$work"' EXIT
for group in "${groups[@]}"; do
  mkdir "$group" 2>/dev/null || { echo "skipped: no control group can be made in $root"; exit 77; }
  echo $limit > "$group/$maximum" 2>/dev/null || { echo "skipped: $root limits no memory"; exit 77; }
done

cat > "$work/job.yaml" <<JOB
name: small-nodes
model: {config: {model_type: gpt2, hidden_size: 1024, num_hidden_layers: 24, num_attention_heads: 16, vocab_size: 50257,
        max_position_embeddings: 1024}}
data: {text_files: [$text], sequence_length: 64}
training: {steps: $steps, global_batch_size: 8, micro_batch_size: 1}
evaluation: {samples: 8}
generation: {max_new_tokens: 0}
runtime: {threads: 1, deadline_seconds: 600}
JOB
cat > "$work/in_group.sh" <<'GROUP'
#!/usr/bin/env bash
echo $$ > "$1-$OMPI_COMM_WORLD_RANK/cgroup.procs"
shift
exec "$@"
GROUP
chmod +x "$work/in_group.sh"

# What a rank takes beside its plan: the program, MPI, the text.
room=$((limit - (150 << 20)))
answer=$("$bin/trireme" plan "$work/job.yaml" --ranks $ranks --fit $room | tee "$work/fit.txt" | grep -- '--set' | tail -1)
[[ -n $answer ]] || { cat "$work/fit.txt"; echo "no change was named that fits $room bytes"; exit 1; }
read -ra changes <<< "$answer"
cat "$work/fit.txt"

losses() { sed -n 's/.*"loss":\([0-9.e+-]*\).*/\1/p' "$1/metrics.jsonl"; }
mpi=(mpirun --allow-run-as-root --oversubscribe)
# $1: run folder; the rest: options. Of every rank the peak of its group is shown.
in_groups() {
  local folder=$1
  shift
  "${mpi[@]}" -n $ranks "$work/in_group.sh" "$root/trireme-small-$$" "$bin/trireme-worker" --job "$work/job.yaml" \
    --run-dir "$folder" "$@" > "$work/log" 2>&1 || { tail -20 "$work/log"; return 1; }
}

if in_groups "$work/as-it-is" 2> /dev/null > "$work/refused"; then
  echo "the job as it is ran within $limit bytes: this proves nothing"
  exit 1
fi
echo "as it is: $(grep -m1 -i -e memory -e fit "$work/refused" || tail -1 "$work/refused")"
"${mpi[@]}" -n 1 "$bin/trireme-worker" --job "$work/job.yaml" --run-dir "$work/one" > "$work/log" 2>&1 ||
  { tail -20 "$work/log"; exit 1; }
compare() {
  paste <(losses "$work/one") <(losses "$1") | awk -v name="$2" '
    {d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > worst) worst = d; n++; printf "  step %d: %s %s\n", n, $1, $2}
    END {printf "%s: %d losses, the largest relative difference %.1e\n", name, n, worst; exit !(n > 0 && worst < 1e-5)}'
}
failed=0
try() {
  local name=$1
  shift
  for group in "${groups[@]}"; do echo 0 > "$group/$peak" 2>/dev/null || true; done
  in_groups "$work/$name" "$@" || { echo "$name: failed"; failed=1; return; }
  compare "$work/$name" "$name" || failed=1
  for group in "${groups[@]}"; do cat "$group/$peak" 2>/dev/null; done | sort -n | tail -1 |
    awk -v limit=$limit '{printf "  the largest group held %d of %d bytes\n", $1, limit}'
}
try fitted "${changes[@]}"
try offloaded --set parallelism.zero_stage=3 --set parallelism.recompute=full --set offload.optimizer_state=file \
  --set offload.activations=file
exit $failed
