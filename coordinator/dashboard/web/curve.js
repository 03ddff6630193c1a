// The points of a job's curves, as they come in.
import { get, withQuery } from './api.js';

const COLUMNS = ['loss', 'tokens_per_second', 'step_time_ms', 'exposed_communication_ms'];
const MOST = 6000;
const LEAST_STEPS = 10; // on each side, of a mean over times, which vary more than losses
const FEWEST = 20; // points that tell what is left
const RECENT_MS = 60000;

// Weighted means over the steps within `half` of each; at the begin, where curves are steep, as far before as after it.
function meansAround(steps, values, weights, half) {
  const sums = [0];
  const shares = [0];
  values.forEach((value, i) => {
    const known = Number.isFinite(value) && weights[i] > 0;
    sums.push(sums[i] + (known ? value * weights[i] : 0));
    shares.push(shares[i] + (known ? weights[i] : 0));
  });
  let begin = 0;
  let end = 0;
  return steps.map((step) => {
    const reach = Math.min(half, step - steps[0]);
    while (steps[begin] < step - reach) begin += 1;
    while (end < steps.length && steps[end] <= step + reach) end += 1;
    const share = shares[end] - shares[begin];
    return share > 0 ? (sums[end] - sums[begin]) / share : null;
  });
}

const emptyPoints = () => ({ step: [], validation: [], ...Object.fromEntries(COLUMNS.map((name) => [name, []])) });

export class Curve {
  constructor(job) {
    this.job = job;
    this.file = '';
    this.offset = 0;
    this.points = emptyPoints();
    this.whole = false;
  }

  // True: there is something new.
  async refresh() {
    const answer = await get(withQuery(`/api/jobs/${this.job}/curve`, { file: this.file, offset: this.offset }));
    const before = this.points.step.length;
    if (answer.reset) this.points = emptyPoints();
    this.file = answer.file;
    this.offset = answer.offset;
    this.whole = answer.offset >= answer.size;
    this.append(answer);
    this.thin();
    return answer.step.length > 0 || answer.validation.length > 0 || (answer.reset && before > 0);
  }

  // Steps ascend: what an answer tells again is left out.
  append(answer) {
    const { step } = this.points;
    answer.step.forEach((value, i) => {
      if (step.length && value <= step[step.length - 1]) return;
      step.push(value);
      for (const name of COLUMNS) this.points[name].push(answer[name][i]);
    });
    this.points.validation.push(...answer.validation);
  }

  thin() {
    if (this.points.step.length <= MOST) return;
    const last = this.points.step.length - 1;
    const keep = (values) => values.filter((_, i) => i % 2 === 0 || i === last);
    for (const name of ['step', ...COLUMNS]) this.points[name] = keep(this.points[name]);
  }

  get last() {
    const at = this.points.step.length - 1;
    return Object.fromEntries(COLUMNS.map((name) => [name, this.points[name][at]]));
  }

  // Over the last minute or so: one slow step does not change what is left by an hour. A point stands for the steps before it.
  get recentStepMs() {
    const { step, step_time_ms: times } = this.points;
    let ms = 0;
    let steps = 0;
    for (let i = step.length - 1, taken = 0; i >= 0 && (taken < FEWEST || ms < RECENT_MS); --i) {
      if (!Number.isFinite(times[i])) continue;
      const part = i > 0 ? step[i] - step[i - 1] : 1;
      ms += times[i] * part;
      steps += part;
      taken += 1;
    }
    return steps > 0 ? ms / steps : NaN;
  }

  // Of a mean: a hundredth of the steps, on each side.
  get reach() {
    const { step } = this.points;
    return (step[step.length - 1] - step[0]) / 100;
  }

  // Steps, loss, its mean, validation loss where there is one.
  lossData() {
    const { step, loss, validation } = this.points;
    const means = meansAround(step, loss, loss.map(() => 1), this.reach);
    const values = new Map(step.map((value, i) => [value, [loss[i], means[i], null]]));
    for (const [at, value] of validation) {
      const row = values.get(at);
      if (row) row[2] = value;
      else values.set(at, [null, null, value]);
    }
    const rows = [...values].sort((a, b) => a[0] - b[0]);
    return [rows.map(([at]) => at), ...[0, 1, 2].map((column) => rows.map(([, row]) => row[column]))];
  }

  // Steps, tokens a second, and those of all steps of a window over the time that they took.
  speedData() {
    const { step, tokens_per_second: speed, step_time_ms: times } = this.points;
    return [step, speed, meansAround(step, speed, times, Math.max(this.reach, LEAST_STEPS))];
  }
}
