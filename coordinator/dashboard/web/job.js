// The page of one job.
import { Refused, get, post, withQuery } from './api.js';
import { ChartPanel } from './charts.js';
import { Curve } from './curve.js';
import { draw, h, toast } from './dom.js';
import { EventList } from './events.js';
import { ago, clock, count, dateAndClock, duration, grouped, loss, percent, plain, plural, short } from './format.js';
import { finishes, hasEnded, secondsLeft, share, standsStill, stateText, tone } from './jobs.js';
import { Log } from './log.js';
import { allocationText, eventsOf, jobOf } from './messages.js';
import { PlanPanels } from './plan.js';
import { Timeline } from './timeline.js';

const SURE_MS = 8000;
const DAY_MS = 86400000;
const MOST_STALLS = 4; // told of one by one
const NEVER_RAN = 'It never ran: there are no curves, no timeline and no log.';
const GONE = 'The files of its run folder are gone.';
const NOT_YET = 'Curves, timeline and log are drawn here once it runs.';

function tile(label, value, about, bar) {
  return h('div', { class: 'tile', title: [`${label}: ${value}`, about].filter(Boolean).join(', '), data: { tile: label } },
    h('div', { class: 'label' }, label), h('div', { class: 'value' }, value), h('div', { class: 'more-about' }, about || '\u00a0'), bar);
}

function tiles(job, curve, now) {
  const progress = job.progress ?? {};
  const stepMs = curve.recentStepMs;
  const left = secondsLeft(job, stepMs);
  const live = !hasEnded(job);
  const time = Number.isFinite(left) ? ['Time left', duration(left), `at ${duration(stepMs / 1000)} a step`]
    : ['In this state', duration((now - job.changed_ms) / 1000), `since ${(now - job.changed_ms < DAY_MS ? clock : dateAndClock)(job.changed_ms)}`];
  if (Number.isFinite(left) && stepMs < 10000) time[2] = `at ${stepMs.toFixed(stepMs < 10 ? 1 : 0)} ms a step`;
  if (finishes(job)) time.splice(0, 3, 'Time left', 'finishing', 'all steps are done');
  if (standsStill(job)) time.splice(0, 3, 'Time left', 'stalled', `attempt ${job.attempt}`);
  if (!live) time.splice(0, 3, 'Ended', ago(job.changed_ms, now), `${job.attempt ? 'took' : 'after'} ${duration((job.changed_ms - job.submitted_ms) / 1000)}`);
  const lastLoss = progress.loss || curve.last.loss;
  // An attempt that has not reported a step yet goes on from its checkpoint.
  const step = progress.step || (live && job.checkpoint_step) || (curve.points.step.at(-1) ?? (job.checkpoint_step || progress.step));
  const part = progress.steps ? Math.min(1, step / progress.steps) : share(job);
  return [
    tile('Step', count(step), progress.steps ? `of ${count(progress.steps)}` : '',
      h('div', { class: 'bar', data: { state: tone(job) } }, h('i', { style: { width: `${100 * part}%` } }))),
    tile('Loss', loss(lastLoss), progress.validation_step ? `validation ${loss(progress.validation_loss)}` : ''),
    tile('Tokens a second', short(progress.tokens_per_second || curve.last.tokens_per_second),
      [progress.utilisation ? `${percent(progress.utilisation)} of the peak` : '',
        progress.overall_tokens_per_second ? `${short(progress.overall_tokens_per_second)} overall` : ''].filter(Boolean).join(', ')),
    tile(...time),
    tile('Checkpoint', job.checkpoint_step ? count(job.checkpoint_step) : '-', job.checkpoint_step ? 'newest step on disk' : 'none yet'),
    tile('Attempt', job.attempt ? count(job.attempt) : '-', !job.attempt ? 'not started' : job.state === 'failed' ? 'failed' : job.failures ? plural(job.failures, 'failure') : 'no failure'),
  ];
}

function failureBanner(job, level, lead) {
  const failure = job.failure ?? {};
  return h('div', { class: 'banner', data: { level } },
    h('p', {}, h('b', {}, failure.headline || job.reason || lead)),
    failure.evidence ? h('pre', {}, failure.evidence) : null,
    failure.next_action ? h('p', {}, failure.next_action) : null);
}

// As `trireme explain` has it.
function stallBanner(job) {
  const from = job.checkpoint_step ? `from the checkpoint of step ${count(job.checkpoint_step)}` : 'from the start';
  return h('div', { class: 'banner', data: { level: 'warn' } },
    h('p', {}, h('b', {}, 'It is stalled')),
    job.stalled.slice(0, MOST_STALLS).map((text) => h('p', {}, grouped(text))),
    job.stalled.length > MOST_STALLS ? h('p', {}, `and ${plural(job.stalled.length - MOST_STALLS, 'other rank')}`) : null,
    h('p', { class: 'muted' }, 'Look at the process named there (stopped, a debugger?) and its node; ' +
      `if it stays so, the attempt ends by itself and the next one goes on ${from}.`));
}

function banner(job) {
  if (job.state === 'failed') return failureBanner(job, 'bad', 'failed');
  if (job.state === 'recovering') return failureBanner(job, 'warn', 'an attempt has failed');
  if (job.state === 'pending') {
    const place = job.queue_position ? `Number ${job.queue_position} in the queue` : 'In the queue';
    return h('div', { class: 'banner', data: { level: 'wait' } }, h('p', {}, h('b', {}, place), job.waits_for ? `: ${job.waits_for}` : ''));
  }
  if (standsStill(job)) return stallBanner(job);
  if (job.waits_for) return h('div', { class: 'banner', data: { level: 'warn' } }, h('p', {}, job.waits_for));
  if (job.desired_state === 'cancel' && !hasEnded(job)) {
    return h('div', { class: 'banner' }, h('p', {}, 'Cancelled: it may save a checkpoint first, and never starts again.'));
  }
  if (job.state === 'pausing') return h('div', { class: 'banner' }, h('p', {}, 'Stops at the next step boundary with a checkpoint.'));
  return null;
}

export class JobPage {
  // `tick`: asks the coordinator at once.
  constructor(id, tick) {
    this.id = id;
    this.tick = tick;
    this.path = `/api/jobs/${id}`;
    this.curve = new Curve(id);
    this.events = new EventList();
    this.log = new Log(id);
    this.timeline = new Timeline();
    this.plan = new PlanPanels();
    this.losses = new ChartPanel({
      title: 'Loss', label: 'Loss over the steps', format: loss, axis: plain,
      series: [{ label: 'step', color: 'accent', width: 1, alpha: 0.35 }, { label: 'mean', color: 'accent', width: 2, derived: true },
        { label: 'validation', color: 'weight-grad', dots: true, width: 2 }],
    }, 'w6');
    this.speed = new ChartPanel({
      title: 'Throughput', label: 'Tokens a second over the steps', format: short,
      series: [{ label: 'step', color: 'blue', width: 1, alpha: 0.3 }, { label: 'mean', color: 'blue', width: 2, fill: true, derived: true }],
    }, 'w6');
    this.losses.element.id = 'loss';
    this.speed.element.id = 'throughput';
    this.early = h('section', { class: 'panel early' });
    this.happened = h('section', { class: 'panel w5', id: 'events' }, h('div', { class: 'head' }, h('h2', {}, 'What happened')), this.events.element);
    this.title = h('div', { class: 'title' });
    this.banner = h('div', {});
    this.tiles = h('div', { class: 'tiles' });
    this.element = h('div', { data: { page: id } }, this.title, this.banner, this.tiles,
      h('div', { class: 'grid' }, this.early, this.losses.element, this.speed.element, this.timeline.element, this.plan.mesh, this.plan.bytes,
        this.happened, this.log.element, this.plan.file));
    this.planned = null; // the attempt of the plan that is shown
    this.ticks = 0;
    this.settled = 0; // refreshes since the job has ended and all was read
  }

  async refresh(state) {
    if (this.gone) return;
    let job;
    try {
      job = jobOf(await get(this.path));
    } catch (error) {
      if (!(error instanceof Refused) || ![403, 404].includes(error.status)) throw error;
      this.gone = true;
      this.element.replaceChildren(h('div', { class: 'nothing' }, error.message));
      return;
    }
    if (this.state && this.state !== job.state) this.settled = 0;
    this.state = job.state;
    this.showParts(job);
    await this.refreshEvents(state);
    this.drawTitle(job);
    draw(this.banner, [job.state, job.desired_state, job.reason, job.failure, job.waits_for, job.queue_position, job.stalled, job.checkpoint_step], () => banner(job) ?? []);
    if (this.settled < 3 || this.log.hurry) await this.refreshFiles(job);
    draw(this.tiles, [job.progress, job.state, job.stalled, job.attempt, job.failures, job.checkpoint_step, Math.floor(state.now / 5000), this.curve.points.step.length],
      () => tiles(job, this.curve, state.now));
  }

  // What has never run has no curves, no timeline and no log.
  showParts(job) {
    const ran = job.attempt > 0;
    const wide = !ran;
    for (const panel of [this.losses, this.speed, this.timeline, this.log]) panel.element.hidden = !ran;
    this.early.hidden = ran;
    this.early.textContent = hasEnded(job) ? NEVER_RAN : NOT_YET;
    this.happened.classList.toggle('w5', !wide);
  }

  // Of an ended job those that it had.
  allocationOf(job) {
    return job.allocation.length === 0 && hasEnded(job) ? this.events.lastAllocation() : job.allocation;
  }

  async refreshEvents(state) {
    let more = !this.told;
    while (more) {
      const answer = eventsOf(await get(withQuery(`${this.path}/events`, { after: this.events.last })));
      this.events.add(answer.events);
      more = answer.more && answer.events.length > 0;
    }
    this.told = true;
    this.events.add(state.events.filter((event) => event.job === this.id));
  }

  async refreshFiles(job) {
    this.ticks += 1;
    if (await this.curve.refresh()) {
      this.losses.setData(this.curve.lossData());
      this.speed.setData(this.curve.speedData());
    }
    const planned = job.attempt !== 1 || job.state !== 'planning';
    if (planned && this.planned !== job.attempt) await this.refreshPlan(job);
    if (this.shownPlan) this.plan.setData(this.shownPlan, this.allocationOf(job));
    if (this.ticks % 2 === 1) {
      const timeline = await get(`${this.path}/timeline`);
      this.timeline.setData(timeline);
      this.plan.setUsed(timeline.ranks);
    }
    const gone = this.filesAreGone(job);
    if (hasEnded(job) && this.curve.points.step.length === 0) {
      for (const panel of [this.losses, this.speed]) panel.empty(gone ? GONE : 'It did no step.');
    }
    this.timeline.setEnded(hasEnded(job), gone ? GONE : '');
    this.log.setEnded(hasEnded(job), gone ? GONE : '');
    this.log.setRanks(job.ranks);
    const read = job.attempt === 0 || await this.log.refresh();
    this.settled = hasEnded(job) && read && this.curve.whole ? this.settled + 1 : 0;
  }

  // It did steps, and what it wrote of them is not there.
  filesAreGone(job) {
    const did = job.state === 'completed' || job.checkpoint_step > 0 || job.progress?.step > 0;
    return hasEnded(job) && did && this.curve.file === '';
  }

  whyNoPlan(job) {
    if (!hasEnded(job)) return 'Drawn when the job is planned.';
    return this.filesAreGone(job) ? GONE : 'It ended before it was planned.';
  }

  async refreshPlan(job) {
    try {
      this.shownPlan = await get(`${this.path}/plan`);
      this.planned = job.attempt;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.plan.wait(error.status === 404 ? this.whyNoPlan(job) : error.message);
    }
  }

  drawTitle(job) {
    const ended = hasEnded(job);
    const canPause = !ended && job.desired_state === 'run';
    const canResume = job.desired_state === 'pause' && !ended;
    const canCancel = !ended && job.desired_state !== 'cancel';
    const allocation = allocationText(this.allocationOf(job));
    const about = [job.owner, plural(job.ranks, 'rank'), allocation, job.run_folder].filter(Boolean);
    draw(this.title, [job.name, stateText(job), tone(job), job.desired_state, about], () => [
      h('div', { class: 'text' },
        h('h1', {}, h('span', { class: 'id' }, `${job.id}`), h('span', { class: 'name', title: job.name }, job.name),
          h('span', { class: 'chip', data: { state: tone(job) } }, stateText(job))),
        h('div', { class: 'about' }, about.join(' · '))),
      h('div', { class: 'actions' },
        canResume ? this.button('Resume', 'resume', 'main') : this.button('Pause', 'pause', '', !canPause),
        this.button('Cancel', 'cancel', 'danger', !canCancel)),
    ]);
  }

  button(label, action, kind, disabled = false) {
    const element = h('button', { class: `button ${kind}`, type: 'button', disabled, data: { action } }, label);
    element.addEventListener('click', () => (action === 'cancel' ? this.askTwice(element) : this.ask(action, element)));
    return element;
  }

  // A cancelled job never comes back: a second click means it.
  askTwice(element) {
    if (element.classList.contains('sure')) {
      this.ask('cancel', element);
      return;
    }
    element.classList.add('sure');
    element.textContent = 'Really cancel?';
    setTimeout(() => {
      element.classList.remove('sure');
      element.textContent = 'Cancel';
    }, SURE_MS);
  }

  async ask(action, element) {
    element.disabled = true;
    try {
      await post(`${this.path}/${action}`);
      toast(`${action} asked of job ${this.id}`);
    } catch (error) {
      toast(error.message, 'bad');
      element.disabled = false;
    }
    this.tick();
  }

  close() {
    this.losses.close();
    this.speed.close();
    this.timeline.close();
  }
}
