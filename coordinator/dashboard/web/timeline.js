// The last step: a row per rank, time to the right, coloured as in the pictures of the plans.
import { color, h } from './dom.js';
import { count, milliseconds } from './format.js';

const KINDS = {
  1: ['load', 'load'],
  2: ['forward', 'forward'],
  3: ['input-grad', 'input-grad'],
  4: ['weight-grad', 'weight-grad'],
  5: ['backward', 'input-grad'],
  6: ['send activation', 'wait'],
  7: ['receive activation', 'wait'],
  8: ['send gradient', 'wait'],
  9: ['receive gradient', 'wait'],
  10: ['reduce', 'reduce'],
  11: ['gather', 'reduce'],
  12: ['wait', 'wait'],
  13: ['norm', 'optimizer'],
  14: ['optimizer', 'optimizer'],
};
const LEGEND = [[2, 'forward'], [3, 'input-grad'], [5, 'backward'], [4, 'weight-grad'], [12, 'wait'], [10, 'communication'],
  [14, 'norm, optimizer'], [1, 'load']];
const COMPUTES = [2, 3, 4, 5];
const LEFT = 54;
const RIGHT = 12;
const AXIS = 24;

const nameOf = (kind) => (KINDS[kind] ?? [`kind ${kind}`])[0];
const colorOf = (kind) => color((KINDS[kind] ?? ['', 'load'])[1]);

// Later virtual stages of a rank are lighter.
const opacityOf = (stage) => [1, 0.66, 0.46, 0.34][stage % 4];

function niceTick(length, most) {
  const raw = length / most;
  const power = 10 ** Math.floor(Math.log10(Math.max(1, raw)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((tick) => tick >= raw);
}

export class Timeline {
  constructor() {
    this.about = h('div', { class: 'about' });
    this.legend = h('div', { class: 'legend' });
    this.canvas = h('canvas', { role: 'img', 'aria-label': 'What each rank did in the last step' });
    this.tip = h('div', { class: 'tip', hidden: true });
    this.area = h('div', { class: 'timeline' }, this.canvas, this.tip);
    this.nothing = h('div', { class: 'empty' }, 'The ranks have not reported a step yet.');
    this.element = h('section', { class: 'panel', id: 'timeline' },
      h('div', { class: 'head' }, h('h2', {}, 'The last step'), this.legend, this.about), this.nothing, this.area);
    this.data = null;
    this.area.hidden = true;
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.element);
    this.redraw = () => this.draw();
    document.addEventListener('themechange', this.redraw);
    this.canvas.addEventListener('mousemove', (event) => this.point(event));
    this.canvas.addEventListener('mouseleave', () => { this.tip.hidden = true; });
  }

  // `why` there is nothing: empty, it reported nothing.
  setEnded(ended, why) {
    this.nothing.textContent = why ? why : ended ? 'The ranks reported no step.' : 'The ranks have not reported a step yet.';
  }

  setData(data) {
    if (data.step === null || data.length_us <= 0) return;
    this.data = data;
    this.nothing.hidden = true;
    this.area.hidden = false;
    const hidden = data.ranks_of_job - data.ranks.length;
    const late = data.ranks.filter((rank) => rank.step !== data.step).length;
    this.about.textContent = [`step ${count(data.step)}`, milliseconds(data.length_us), hidden > 0 ? `${data.ranks.length} of ${data.ranks_of_job} ranks` : '',
      late ? `${late} at another step` : ''].filter(Boolean).join(' · ');
    const kinds = new Set(data.ranks.flatMap((rank) => rank.spans.map((span) => span[0])));
    if (data.ranks.some((rank) => rank.transfers.length > 0)) kinds.add(10);
    this.legend.replaceChildren(...LEGEND.filter(([kind]) => kinds.has(kind)).map(([kind, label]) =>
      h('span', {}, h('i', { style: { background: `var(--${KINDS[kind][1]})` } }), label)));
    this.draw();
  }

  get rowHeight() {
    const rows = this.data.ranks.length;
    return rows <= 4 ? 40 : rows <= 8 ? 32 : rows <= 16 ? 24 : 18;
  }

  x(us) {
    return LEFT + (us / this.data.length_us) * (this.width - LEFT - RIGHT);
  }

  draw() {
    if (!this.data) return;
    this.width = this.area.clientWidth;
    if (this.width < 100) return;
    const height = this.rowHeight * this.data.ranks.length + AXIS;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext('2d');
    pen.scale(scale, scale);
    pen.font = `11.5px ${getComputedStyle(document.body).fontFamily}`;
    pen.textBaseline = 'middle';
    this.drawAxis(pen, height);
    this.data.ranks.forEach((rank, row) => this.drawRank(pen, rank, row * this.rowHeight));
  }

  drawAxis(pen, height) {
    const tick = niceTick(this.data.length_us, Math.max(2, Math.floor(this.width / 120)));
    pen.textAlign = 'center';
    for (let us = 0; us <= this.data.length_us; us += tick) {
      pen.fillStyle = color('grid');
      pen.fillRect(Math.round(this.x(us)), 0, 1, height - AXIS + 4);
      pen.fillStyle = color('faint');
      if (this.x(us) < this.width - 30) pen.fillText(us ? milliseconds(us) : '0', Math.max(this.x(us), LEFT + 4), height - 9);
    }
  }

  drawRank(pen, rank, y) {
    const top = y + 3;
    const tall = this.rowHeight - 6;
    pen.textAlign = 'right';
    pen.fillStyle = color('muted');
    pen.fillText(`rank ${rank.rank}`, LEFT - 8, y + this.rowHeight / 2);
    pen.fillStyle = color('raised');
    pen.fillRect(LEFT, top, this.width - LEFT - RIGHT, tall);
    if (rank.spans.length === 0) {
      pen.textAlign = 'left';
      pen.fillStyle = color('faint');
      pen.fillText(`at step ${count(rank.step)}`, LEFT + 10, y + this.rowHeight / 2);
      return;
    }
    const thin = Math.max(2, Math.round(tall * 0.14));
    for (const span of rank.spans) this.drawSpan(pen, span, top, tall - thin - 1);
    pen.globalAlpha = 0.75;
    pen.fillStyle = color('reduce');
    for (const [, , , start, length] of rank.transfers) {
      pen.fillRect(this.x(start), top + tall - thin, Math.max(0.5, this.x(start + length) - this.x(start)), thin);
    }
    pen.globalAlpha = 1;
  }

  drawSpan(pen, [kind, stage, microBatch, start, length], top, tall) {
    const left = this.x(start);
    const wide = this.x(start + length) - left;
    const gap = wide > 6 ? 1 : 0;
    pen.globalAlpha = opacityOf(COMPUTES.includes(kind) ? stage : 0);
    pen.fillStyle = colorOf(kind);
    pen.fillRect(left, top, Math.max(0.4, wide - gap), tall);
    pen.globalAlpha = 1;
    if (!COMPUTES.includes(kind) || wide < 16 || tall < 12) return;
    pen.textAlign = 'center';
    pen.fillStyle = stage % 4 ? color('ink') : '#ffffff';
    pen.fillText(String(microBatch), left + wide / 2, top + tall / 2 + 0.5);
  }

  // What is under the pointer.
  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const rank = this.data?.ranks[Math.floor(y / this.rowHeight)];
    const us = ((x - LEFT) / (this.width - LEFT - RIGHT)) * this.data.length_us;
    const slack = this.data.length_us / this.width;
    const span = rank?.spans.find(([, , , start, length]) => us >= start - slack && us <= start + length + slack);
    this.tip.hidden = !span;
    if (!span) return;
    const [kind, stage, microBatch, , length] = span;
    const where = COMPUTES.includes(kind) || kind === 12 ? ` of micro-batch ${microBatch}${stage ? `, virtual stage ${stage}` : ''}` : '';
    this.tip.textContent = `rank ${rank.rank}: ${nameOf(kind)}${where}, ${milliseconds(length)}`;
    const left = Math.min(x + 14, this.width - this.tip.offsetWidth - 4);
    this.tip.style.transform = `translate(${left}px, ${Math.max(0, y - 34)}px)`;
  }

  close() {
    this.resized.disconnect();
    document.removeEventListener('themechange', this.redraw);
  }
}
