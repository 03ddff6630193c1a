// The coordinator's messages (proto/trireme/v1/dashboard.proto, by protobuf's JSON) as the pages use them: 64-bit numbers
// come as strings and times in nanoseconds, enums as names, absent messages not at all.
const number = (text) => Number(text ?? 0);
const milliseconds = (ns) => Math.floor(number(ns) / 1e6);
const word = (name, prefix) => name.slice(prefix.length).toLowerCase();
const stateWord = (name) => word(name, 'JOB_');
const desiredWord = (name) => (name === 'JOB_DESIRED_STATE_UNSPECIFIED' ? 'run' : word(name, 'JOB_DESIRED_'));
// "cancelled: cancelled by ada" says it twice.
const withoutWord = (text, first) => (text.startsWith(`${first} `) ? text.slice(first.length + 1) : text);
const ENOUGH_TO_KNOW = 40; // characters of a headline

export const allocationText = (allocation) => allocation.map((part) => `${part.node} x${part.ranks}`).join(', ');

function progressOf(progress) {
  if (!progress) return null;
  const named = { step: progress.steps_done, steps: progress.steps_total };
  return Object.fromEntries(Object.entries({ ...progress, ...named }).map(([name, value]) => [name, number(value)]));
}

export function jobOf({ job, stalled = [] }) {
  const { status, resources } = job;
  return {
    id: number(job.id),
    name: job.name,
    owner: job.owner,
    state: stateWord(status.state),
    desired_state: desiredWord(status.desired_state),
    reason: status.reason,
    headline: status.failure?.headline ?? '',
    failure: status.failure ?? null,
    attempt: status.attempt,
    failures: status.failures,
    checkpoint_step: number(status.checkpoint_step),
    retry_at_ms: milliseconds(status.retry_at_unix_ns),
    submitted_ms: milliseconds(job.submitted_unix_ns),
    changed_ms: milliseconds(status.changed_unix_ns),
    ranks: resources?.ranks ?? 0,
    cpus_per_rank: resources?.cpus_per_rank ?? 0,
    allocation: job.allocation,
    run_folder: job.run_folder,
    queue_position: job.queue_position,
    waits_for: job.waits_for,
    progress: progressOf(job.progress),
    stalled,
  };
}

const LEVELS = { failed: 'bad', recovering: 'warn', completed: 'good', running: 'good' };

function tellState({ to, reason, failure }) {
  const kind = stateWord(to);
  const headline = failure?.headline ?? '';
  // The reason often ends in the headline, which may be cut there.
  const known = !headline || reason.includes(headline.slice(0, ENOUGH_TO_KNOW));
  return [kind, LEVELS[kind] ?? 'info', [withoutWord(reason, kind), known ? '' : headline].filter(Boolean).join('; ')];
}

function tellNode({ node, state, drained, reason, gone, by }) {
  const lost = state === 'NODE_LOST';
  const what = gone ? 'gone for good' : lost ? 'lost' : 'ready';
  const text = `${node} is ${what}${drained && !gone ? ', drained' : ''}${by ? ` by ${by}` : ''}${reason ? `: ${reason}` : ''}`;
  return ['node', lost ? 'bad' : drained ? 'warn' : 'good', text];
}

// What it is, how much it matters, and a sentence.
function tell(event) {
  if (event.submitted) return ['submitted', 'info', `by ${event.submitted.owner}`];
  if (event.state_changed) return tellState(event.state_changed);
  if (event.desired_state_changed) {
    const { desired_state: desired, by } = event.desired_state_changed;
    const asked = desiredWord(desired);
    return ['asked', 'info', `${asked === 'run' ? 'resume' : asked}${by ? `, by ${by}` : ''}`];
  }
  if (event.placed) {
    const { allocation } = event.placed;
    return ['placed', 'info', allocation.length ? `on ${allocationText(allocation)}` : 'gave its allocation back'];
  }
  if (event.checkpointed) return ['checkpoint', 'info', `of step ${event.checkpointed.step}`];
  if (event.went_on_in_memory) return ['in memory', 'info', `goes on at step ${event.went_on_in_memory.step}`];
  if (event.memory_step_left) {
    const { step, over } = event.memory_step_left;
    return over ? ['in memory', 'info', `step ${step} is passed: any step in memory is used again`]
      : ['in memory', 'warn', `step ${step} failed twice, it is not used again`];
  }
  if (event.stalled) return event.stalled.over ? ['moves again', 'good', event.stalled.text] : ['stalled', 'bad', event.stalled.text];
  if (event.node_changed) return tellNode(event.node_changed);
  return ['event', 'info', 'of a kind that this version does not know'];
}

export function eventOf(event) {
  const [kind, level, text] = tell(event);
  return {
    sequence: number(event.sequence),
    ms: milliseconds(event.time_unix_ns),
    job: number(event.job_id),
    name: event.submitted?.name,
    allocation: event.placed?.allocation,
    kind,
    level,
    text,
  };
}

export const eventsOf = (view) => ({ events: view.events.map(eventOf), last: number(view.last), more: view.more });

export function clusterOf({ cluster, live, user, role, now_unix_ns: now }) {
  const jobs = live.map((job) => jobOf({ job }));
  const on = (node) => jobs.flatMap((job) => job.allocation.filter((part) => part.node === node)
    .map(({ ranks }) => ({ id: job.id, name: job.name, state: job.state, ranks, cpus: ranks * job.cpus_per_rank })));
  return {
    version: cluster.version,
    started_ms: milliseconds(cluster.started_unix_ns),
    jobs_pending: cluster.jobs_pending,
    jobs_running: cluster.jobs_running,
    user,
    role,
    now_ms: milliseconds(now),
    nodes: cluster.nodes.map((node) => ({
      ...node,
      state: node.gone ? 'gone' : node.state === 'NODE_LOST' ? 'lost' : 'ready',
      memory_bytes: number(node.memory_bytes),
      memory_bytes_used: number(node.memory_bytes_used),
      reported_ms: milliseconds(node.last_report_unix_ns),
      drained_ms: milliseconds(node.drained_unix_ns ?? 0),
      jobs: on(node.name),
    })),
  };
}
