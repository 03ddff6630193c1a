// The list of jobs at the side.
import { get, withQuery } from './api.js';
import { byId, h, list } from './dom.js';
import { ago, duration, grouped, loss, plural, short } from './format.js';
import { jobOf } from './messages.js';

const PAGE = 60;
const ENDED = ['completed', 'failed', 'cancelled'];
const FILTERS = [
  ['all', 'All', ''],
  ['active', 'Active', 'pending,planning,launching,running,recovering,pausing,paused'],
  ['failed', 'Failed', 'failed'],
];

let filter = 'all';
let pages = 1;

export const hasEnded = (job) => ENDED.includes(job.state);

export function share(job) {
  if (!job.progress?.steps) return job.state === 'completed' ? 1 : 0;
  return Math.min(1, job.progress.step / job.progress.steps);
}

// All steps are done; the last checkpoint, evaluation or sample is not.
export const finishes = (job) => job.state === 'running' && job.progress?.steps > 0 && job.progress.step >= job.progress.steps;

// Ranks are there but do not move: it is as if it did not run.
export const standsStill = (job) => job.stalled.length > 0;

export const stateText = (job) => (standsStill(job) ? 'stalled' : finishes(job) ? 'finishing' : job.state);

// By which its chip and its bar are coloured.
export const tone = (job) => (standsStill(job) ? 'stalled' : job.state);

export function secondsLeft(job, history) {
  if (job.state !== 'running' || finishes(job) || standsStill(job) || !job.progress || !(history > 0)) return NaN;
  return ((job.progress.steps - job.progress.step) * history) / 1000;
}

const place = (job) => (job.queue_position ? `#${job.queue_position} in the queue` : 'waits for allocation');

// The chip says already what it is.
const because = (job) => (job.reason.startsWith(`${job.state} `) ? job.reason.slice(job.state.length + 1) : job.reason);

function note(job, now) {
  const progress = job.progress;
  if (job.state === 'pending') return job.waits_for ? `${place(job)}: ${job.waits_for}` : place(job);
  if (standsStill(job)) return grouped(job.stalled[0]);
  if (job.waits_for) return job.waits_for;
  switch (job.state) {
    case 'running':
    case 'pausing':
      return progress?.steps ? `step ${short(progress.step)} of ${short(progress.steps)} · loss ${loss(progress.loss)}` : 'starting';
    case 'recovering':
      return job.retry_at_ms > now ? `tries again in ${duration((job.retry_at_ms - now) / 1000)}` : 'stops what is left';
    case 'failed':
      return job.headline || job.reason || 'failed';
    case 'paused':
      if (job.attempt === 0) return 'has not run yet';
      return job.checkpoint_step ? `at step ${short(job.checkpoint_step)}` : 'before its first checkpoint';
    case 'completed':
      return `${plural(job.ranks, 'rank')} · ${ago(job.changed_ms, now)}`;
    default:
      return because(job) || job.state;
  }
}

function makeRow(job) {
  return h('a', { class: 'row', href: `#/jobs/${job.id}`, data: { job: job.id } },
    h('div', { class: 'line' }, h('span', { class: 'id' }, `${job.id}`), h('span', { class: 'name', title: job.name }, job.name),
      h('span', { class: 'chip' })),
    h('div', { class: 'note' }), h('div', { class: 'bar' }, h('i')));
}

const setText = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};

function updateRow(row, job, now, here) {
  row.classList.toggle('here', here);
  if (here) row.setAttribute('aria-current', 'page');
  else row.removeAttribute('aria-current');
  const chip = row.querySelector('.chip');
  chip.dataset.state = tone(job);
  setText(chip, stateText(job));
  const text = row.querySelector('.note');
  setText(text, note(job, now));
  text.title = text.textContent;
  const bar = row.querySelector('.bar');
  bar.dataset.state = tone(job);
  bar.hidden = hasEnded(job) || !job.progress;
  bar.firstChild.style.width = `${(100 * share(job)).toFixed(2)}%`;
}

function drawFilter(again) {
  byId('filter').replaceChildren(...FILTERS.map(([key, label]) =>
    h('button', {
      type: 'button',
      'aria-pressed': String(filter === key),
      data: { filter: key },
      onclick: () => {
        filter = key;
        pages = 1;
        drawFilter(again);
        again();
      },
    }, label)));
}

// `again`: called when another part of the list is wanted.
export function begin(again) {
  drawFilter(again);
  byId('more').addEventListener('click', () => {
    pages += 1;
    again();
  });
}

export async function refresh(state) {
  const states = FILTERS.find(([key]) => key === filter)[2];
  const rows = [];
  let page = '';
  for (let i = 0; i < pages; ++i) {
    const answer = await get(withQuery('/api/jobs', { size: PAGE, state: states, page }));
    rows.push(...answer.jobs.map(jobOf));
    page = answer.next_page;
    if (!page) break;
  }
  byId('more').hidden = !page;
  state.jobs = rows;
  show(state);
}

export function show(state) {
  const container = byId('jobs');
  if (state.jobs.length === 0) {
    const text = filter === 'all' ? 'No jobs yet. trireme submit job.yaml queues one.' : 'No such jobs.';
    container.replaceChildren(h('div', { class: 'nothing' }, text));
    return;
  }
  list(container, state.jobs, (job) => job.id, makeRow, (row, job) => updateRow(row, job, state.now, job.id === state.job));
}
