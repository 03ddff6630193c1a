#!/usr/bin/env bash
# Trains GPT-2 350M on ranks that have 1.5 GB each, where one rank needs 5.5 GiB: the plan says what makes it fit, a
# control group holds every rank to it, and losses, gradient norms and validation losses are those of a single rank with
# all the memory it wants. Four steps, so that a moment lost on its way out or back shows.
#   small_nodes.sh BIN [350m|small] [TEXT]
# `small`: a model of 30 million parameters on 4 ranks of 480 MB, for a look at the script itself.
# Needs root, control groups of memory and 16 GB (small: 4); exits with 77 where it cannot run.
set -euo pipefail
bin=$1 size=${2:-350m} text=${3:-} steps=4
case $size in
  350m) limit=1500000000 ranks=8 width=1024 layers=24 heads=16 needed=16 ;;
  small) limit=480000000 ranks=4 width=384 layers=6 heads=6 needed=4 ;;
  *) echo "the size $size: 350m or small"; exit 2 ;;
esac

[[ $(id -u) == 0 ]] || { echo "skipped: control groups need root"; exit 77; }
free=$(awk '/MemAvailable/ {print $2}' /proc/meminfo)
((free > needed << 20)) || { echo "skipped: $((free >> 20)) GiB of memory are free, $needed are needed"; exit 77; }
# `swap` bounds what a group has beside its memory: nothing.
if [[ -f /sys/fs/cgroup/cgroup.controllers ]]; then
  root=/sys/fs/cgroup maximum=memory.max peak=memory.peak swap=memory.swap.max swap_bytes=0
  echo +memory > "$root/cgroup.subtree_control" 2>/dev/null || true
else
  root=/sys/fs/cgroup/memory maximum=memory.limit_in_bytes peak=memory.max_usage_in_bytes
  swap=memory.memsw.limit_in_bytes swap_bytes=$limit
fi
work=$(mktemp -d)
groups=()
for ((rank = 0; rank < ranks; ++rank)); do groups+=("$root/trireme-small-$$-$rank"); done
# Whom mpirun has killed may be in its group for a moment yet.
leave() {
  local group try
  for group in "${groups[@]}"; do
    for try in {1..50}; do [[ ! -d $group ]] || rmdir "$group" 2>/dev/null || sleep 0.1; done
  done
  rm -rf "$work"
}
trap leave EXIT
for group in "${groups[@]}"; do
  mkdir "$group" 2>/dev/null || { echo "skipped: no control group can be made in $root"; exit 77; }
  echo $limit > "$group/$maximum" 2>/dev/null || { echo "skipped: $root limits no memory"; exit 77; }
  [[ ! -e $group/$swap ]] || echo $swap_bytes > "$group/$swap"
done
[[ -n $text ]] || { text=$work/text; seq 1 40000 > "$text"; }

# Four micro-batches a rank: under gpipe each is kept long enough that its activations go out.
cat > "$work/job.yaml" <<JOB
name: small-nodes
model: {config: {model_type: gpt2, hidden_size: $width, num_hidden_layers: $layers, num_attention_heads: $heads,
        vocab_size: 50257, max_position_embeddings: 1024}}
data: {text_files: [$text], sequence_length: 64}
training: {steps: $steps, global_batch_size: $((4 * ranks)), micro_batch_size: 1}
optimizer: {learning_rate: 3.0e-4, warmup_steps: 1}
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
answer=$("$bin/trireme" plan "$work/job.yaml" --ranks $ranks --fit $room | tee "$work/fit.txt" | grep -- '--set' | tail -1) || true
cat "$work/fit.txt"
[[ -n $answer ]] || { echo "no change was named that fits $room bytes"; exit 1; }
read -ra changes <<< "$answer"
offloaded=(--set parallelism.zero_stage=3 --set parallelism.recompute=full --set parallelism.schedule=gpipe
           --set offload.optimizer_state=file --set offload.activations=file)
schedule=$("$bin/trireme" plan "$work/job.yaml" --ranks $ranks "${offloaded[@]}" | grep '^schedule ')
[[ $schedule == *"activations offloaded to a file"* ]] || { echo "no activations move: $schedule"; exit 1; }

# $1: run folder, $2: name of a number. By step, one a line.
numbers() { sed -n 's/.*"'"$2"'":\([0-9.e+-]*\).*/\1/p' "$1/metrics.jsonl"; }
mpi=(mpirun --allow-run-as-root --oversubscribe)
# $1: ranks, $2: run folder; the rest: options.
in_groups() {
  local count=$1 folder=$2
  shift 2
  "${mpi[@]}" -n "$count" "$work/in_group.sh" "$root/trireme-small-$$" "$bin/trireme-worker" --job "$work/job.yaml" \
    --run-dir "$folder" "$@" > "$work/log" 2>&1 || { tail -20 "$work/log"; return 1; }
}

# $1: ranks, $2: by what words they are refused. Of all ranks together a machine may have too little beside the groups, so
# one alone is asked too.
refused() {
  if in_groups "$1" "$work/as-it-is" > /dev/null; then
    echo "the job as it is ran on $1 ranks of $limit bytes: this proves nothing"
    exit 1
  fi
  local refusal
  refusal=$(grep -m1 -oE "$2" "$work/log") || {
    echo "the job as it is did not fail for its memory:"; cat "$work/log"; exit 1; }
  echo "as it is: $refusal"
}
refused $ranks 'the plan needs [0-9]+ MiB .*MiB are available'
refused 1 'the plan needs [0-9]+ MiB .* available below the limit of [0-9]+ MiB'
"${mpi[@]}" -n 1 "$bin/trireme-worker" --job "$work/job.yaml" --run-dir "$work/one" > "$work/log" 2>&1 ||
  { tail -20 "$work/log"; exit 1; }
# $1: run folder, $2: number, $3: how many there are at least.
compare() {
  paste <(numbers "$work/one" "$2") <(numbers "$1" "$2") | awk -v name="$2" -v least="$3" '
    NF != 2 {bad = 1}
    {d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > worst) worst = d; n++; line = line " " $2}
    END {printf "  %s:%s; %d, the largest relative difference %.1e\n", name, line, n, worst
         exit bad || n < least || worst >= 1e-5}'
}
failed=0
try() {
  local name=$1
  shift
  for group in "${groups[@]}"; do echo 0 > "$group/$peak" 2>/dev/null || true; done
  echo "$name: $*"
  in_groups $ranks "$work/$name" "$@" || { echo "$name: failed"; failed=1; return; }
  compare "$work/$name" loss $steps || failed=1
  compare "$work/$name" gradient_norm $steps || failed=1
  compare "$work/$name" validation_loss 1 || failed=1
  for group in "${groups[@]}"; do cat "$group/$peak" 2>/dev/null; done | sort -n | tail -1 |
    awk -v limit=$limit '{printf "  the largest group held %d of %d bytes\n", $1, limit}'
}
try fitted "${changes[@]}"
try offloaded "${offloaded[@]}"
((failed == 0)) && echo "all numbers agree"
exit $failed
