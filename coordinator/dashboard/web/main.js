// The page as a whole: what is shown, and when the coordinator is asked again.
import { Refused, get, post, withQuery } from './api.js';
import { byId, draw, h } from './dom.js';
import { newestCheckpoints } from './events.js';
import { ago, count, plural } from './format.js';
import * as jobs from './jobs.js';
import { JobPage } from './job.js';
import { clusterOf, eventsOf } from './messages.js';
import { Overview } from './overview.js';

const TICK_MS = 1000;
const LONGEST_PAUSE_MS = 15000;
const MOST_EVENTS = 300;

const state = { now: Date.now(), cluster: null, jobs: [], job: null, names: new Map(), events: [], sequence: null };
let page = null;
let failures = 0;
let timer = 0;
let asking = false;
let askAgain = false;

function pulse(kind, text) {
  const element = byId('pulse');
  element.dataset.state = kind;
  element.querySelector('span').textContent = text;
}

function drawTop() {
  const cluster = state.cluster;
  draw(byId('figures'), [cluster.jobs_running, cluster.jobs_pending, cluster.nodes.length, cluster.version, ago(cluster.started_ms, state.now)],
    () => [
      h('span', {}, h('b', {}, count(cluster.jobs_running)), ' running'),
      h('span', {}, h('b', {}, count(cluster.jobs_pending)), ' waiting'),
      h('span', {}, h('b', {}, count(cluster.nodes.length)), cluster.nodes.length === 1 ? ' node' : ' nodes'),
      h('span', {}, `triremed ${cluster.version}, started ${ago(cluster.started_ms, state.now)}`),
    ]);
  draw(byId('who'), [cluster.user, cluster.role], () => h('span', {}, `${cluster.user} · ${cluster.role}`));
  const job = state.jobs.find((one) => one.id === state.job);
  document.title = job ? `${job.name} · ${jobs.stateText(job)} · Trireme` : `${plural(cluster.jobs_running, 'job')} running · Trireme`;
}

async function askAll() {
  state.cluster = clusterOf(await get('/api/cluster'));
  state.now = state.cluster.now_ms;
  const told = eventsOf(await get(withQuery('/api/events', { after: state.sequence })));
  state.sequence = told.last;
  state.events = newestCheckpoints([...state.events, ...told.events]).slice(-MOST_EVENTS);
  await jobs.refresh(state);
  for (const event of told.events) if (event.name) state.names.set(event.job, event.name);
  for (const job of state.jobs) state.names.set(job.id, job.name);
  drawTop();
  const here = page;
  await here.refresh(state);
}

// One tick at a time; a failed one waits longer and longer for the next.
async function tick() {
  clearTimeout(timer);
  if (asking) {
    askAgain = true;
    return;
  }
  asking = true;
  let wait = TICK_MS;
  try {
    await askAll();
    failures = 0;
    pulse('live', 'live');
  } catch (error) {
    if (error instanceof Refused && error.status === 401) {
      location.reload();
      return;
    }
    failures += 1;
    wait = Math.min(LONGEST_PAUSE_MS, TICK_MS * 2 ** failures);
    pulse('away', failures < 2 ? 'asking again' : 'the coordinator does not answer');
    if (!(error instanceof Refused) && !(error instanceof TypeError) && error.name !== 'TimeoutError') console.error(error);
  }
  asking = false;
  if (askAgain) wait = 0;
  askAgain = false;
  // A page that nobody sees asks nothing; it goes on when it is looked at.
  if (!document.hidden) timer = setTimeout(tick, wait);
}

function route() {
  const found = /^#\/jobs\/(\d+)$/.exec(location.hash);
  const job = found ? Number(found[1]) : null;
  if (page && job === state.job) return;
  page?.close();
  state.job = job;
  page = job === null ? new Overview(state.names) : new JobPage(job, tick);
  byId('main').replaceChildren(page.element);
  byId('main').scrollTop = 0;
  jobs.show(state);
  tick();
}

function toggleTheme() {
  const theme = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
  document.documentElement.dataset.theme = theme;
  document.documentElement.dataset.chosen = theme;
  try {
    localStorage.setItem('trireme-theme', theme);
  } catch (denied) {
    // Chosen for this visit alone.
  }
  document.dispatchEvent(new Event('themechange'));
}

byId('theme').addEventListener('click', toggleTheme);
byId('leave').addEventListener('click', () => post('/logout').finally(() => location.reload()));
document.addEventListener('visibilitychange', () => document.hidden || tick());
window.addEventListener('hashchange', route);
jobs.begin(tick);
route();
