// The points of a job's curves, as they come in.
import { get, withQuery } from './api.js';

const COLUMNS = ['loss', 'tokens_per_second', 'step_time_ms', 'exposed_communication_ms'];
const MOST = 6000;

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

  // Steps, loss, its running mean over a fiftieth of the points, validation loss where there is one.
  lossData() {
    const { step, loss, validation } = this.points;
    const values = new Map(step.map((value, i) => [value, [loss[i], null, null]]));
    const window = Math.max(1, Math.round(step.length / 50));
    let sum = 0;
    const inside = [];
    step.forEach((value, i) => {
      if (Number.isFinite(loss[i])) {
        inside.push(loss[i]);
        sum += loss[i];
      }
      if (inside.length > window) sum -= inside.shift();
      values.get(value)[1] = inside.length ? sum / inside.length : null;
    });
    for (const [at, value] of validation) {
      const row = values.get(at);
      if (row) row[2] = value;
      else values.set(at, [null, null, value]);
    }
    const rows = [...values].sort((a, b) => a[0] - b[0]);
    return [rows.map(([at]) => at), ...[0, 1, 2].map((column) => rows.map(([, row]) => row[column]))];
  }

  speedData() {
    return [this.points.step, this.points.tokens_per_second];
  }
}
