// A curve without any library, for programs built without uPlot: lines, dots and a frame.
import { color, svg } from './dom.js';

const LEFT = 58;
const BOTTOM = 24;
const TOP = 8;
const RIGHT = 10;

function extent(lists, fromZero) {
  let low = Infinity;
  let high = -Infinity;
  for (const values of lists) {
    for (const value of values) {
      if (!Number.isFinite(value)) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  if (low > high) return [0, 1];
  if (fromZero) return [0, high > 0 ? 1.08 * high : 1];
  const margin = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low - margin, high + margin];
}

export class SimpleChart {
  constructor(container, options) {
    this.container = container;
    this.options = options;
    this.data = [[]];
  }

  setData(data) {
    this.data = data;
    this.draw();
  }

  draw() {
    const width = Math.max(120, this.container.clientWidth);
    const height = Math.max(80, this.container.clientHeight);
    const [xs, ...lists] = this.data;
    const [left, right] = [xs[0] ?? 0, Math.max((xs[0] ?? 0) + 1, xs[xs.length - 1] ?? 1)];
    const [low, high] = extent(lists, this.options.series.some((one) => one.fill));
    const x = (value) => LEFT + ((value - left) / (right - left)) * (width - LEFT - RIGHT);
    const y = (value) => TOP + ((high - value) / (high - low)) * (height - TOP - BOTTOM);
    const picture = svg('svg', { width, height, role: 'img', 'aria-label': this.options.label });
    for (let i = 0; i <= 4; ++i) {
      const value = low + ((high - low) * i) / 4;
      picture.append(
        svg('line', { x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value), stroke: color('grid') }),
        svg('text', { x: LEFT - 8, y: y(value) + 4, 'text-anchor': 'end', 'font-size': 11, fill: color('faint') }, this.options.format(value)));
    }
    for (const [value, anchor] of [[left, 'start'], [right, 'end']]) {
      picture.append(svg('text', { x: x(value), y: height - 6, 'text-anchor': anchor, 'font-size': 11, fill: color('faint') }, `step ${Math.round(value)}`));
    }
    this.options.series.forEach((one, i) => this.drawSeries(picture, one, xs, lists[i] ?? [], x, y));
    this.container.replaceChildren(picture);
  }

  drawSeries(picture, one, xs, values, x, y) {
    const stroke = color(one.color);
    const points = xs.map((step, k) => [step, values[k]]).filter(([, value]) => Number.isFinite(value));
    if (one.dots || points.length === 1) {
      for (const [step, value] of points) picture.append(svg('circle', { cx: x(step), cy: y(value), r: 3, fill: stroke }));
      return;
    }
    const path = points.map(([step, value], k) => `${k ? 'L' : 'M'}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join('');
    picture.append(svg('path', { d: path, fill: 'none', stroke, 'stroke-width': one.width, opacity: one.alpha ?? 1 }));
  }

  destroy() {
    this.container.replaceChildren();
  }
}
