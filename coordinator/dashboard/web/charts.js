// Curves over the steps: by uPlot where the program was built with it.
import { color, h } from './dom.js';
import { count } from './format.js';
import { SimpleChart } from './simple_chart.js';

const library = import('/assets/uPlot.esm.js').then((module) => module.default, () => null);
// Ticks between steps would be half steps.
const WHOLE = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((factor) => factor * 10 ** power)).flat();
const FONT = '11px Inter, "Segoe UI", system-ui, "DejaVu Sans", sans-serif';

function withAlpha(hex, alpha) {
  return /^#[0-9a-f]{6}$/i.test(hex) ? hex + Math.round(255 * alpha).toString(16).padStart(2, '0') : hex;
}

function axis(options, more) {
  return {
    stroke: color('faint'),
    font: FONT,
    grid: { stroke: color('grid'), width: 1 },
    ticks: { show: false },
    ...more,
    values: (chart, values) => values.map((value) => (value === null ? '' : options(value))),
  };
}

function seriesOf(one) {
  const stroke = withAlpha(color(one.color), one.alpha ?? 1);
  if (one.dots) return { stroke, paths: () => null, points: { show: true, size: 6, fill: stroke, width: 0 } };
  return {
    stroke,
    width: one.width,
    fill: one.fill ? withAlpha(color(one.color), 0.08) : undefined,
    points: { show: (chart) => chart.data[0].length === 1, size: 7, fill: stroke, width: 0 },
    spanGaps: true,
  };
}

// Of the part in view.
function top(chart, at, high) {
  const { min, max } = chart.scales.x;
  const seen = (_, i) => !(chart.data[0][i] < min || chart.data[0][i] > max);
  const most = chart.data[at].filter(seen).reduce((best, value) => Math.max(best, value ?? 0), 0);
  return 1.08 * (Math.min(high, 3 * most) || high || 1);
}

// A panel with a heading, a line of figures (of the last step, or where the pointer is), and the curve.
// options: title, label, format, series: [{label, color, width, alpha, dots, fill}]
export class ChartPanel {
  constructor(options, wide) {
    this.options = options;
    this.data = [[]];
    this.part = null; // first and last step in view, where that is not all
    this.about = h('div', { class: 'about' });
    this.area = h('div', { class: 'chart' });
    this.element = h('section', { class: `panel ${wide}` },
      h('div', { class: 'head' }, h('h2', {}, options.title),
        h('div', { class: 'legend' }, options.series.map((one) =>
          h('span', {}, h('i', { style: { background: `var(--${one.color})`, opacity: one.alpha ?? 1 } }), one.label))),
        this.about), this.area);
    this.resized = new ResizeObserver(() => this.fit());
    this.resized.observe(this.area);
    this.rebuild = () => {
      this.chart?.destroy();
      this.chart = null;
      this.show();
    };
    document.addEventListener('themechange', this.rebuild);
    this.empty('Nothing to draw yet.');
  }

  empty(text) {
    this.chart?.destroy();
    this.chart = null;
    this.area.replaceChildren(h('div', { class: 'empty' }, text));
    this.about.textContent = '';
  }

  setData(data) {
    this.data = data;
    this.show();
  }

  async show() {
    if (this.data[0].length === 0) return;
    const UPlot = await library;
    if (this.closed) return;
    this.tell(this.data[0].length - 1);
    if (this.chart) {
      this.sizeDots();
      this.chart.setData(this.data, !this.part);
      this.keepPart();
      return;
    }
    this.area.replaceChildren();
    if (!UPlot) {
      this.chart = new SimpleChart(this.area, this.options);
      this.chart.setData(this.data);
      return;
    }
    const { part } = this;
    this.chart = new UPlot(this.settings(), this.data, this.area);
    this.sizeDots();
    this.part = part;
    this.keepPart();
  }

  // The steps that a person has dragged over stay in view while others come in; a double click, or a curve that ends before
  // them, shows all again.
  keepPart() {
    if (!this.part || this.chart instanceof SimpleChart) return;
    const steps = this.data[0];
    const [min, max] = this.part[0] < steps[steps.length - 1] ? this.part : [steps[0], steps[steps.length - 1]];
    this.chart.setScale('x', { min, max });
  }

  // Many dots are small, so that they do not become a band.
  sizeDots() {
    if (this.chart instanceof SimpleChart) return;
    this.options.series.forEach((one, i) => {
      if (!one.dots) return;
      const dots = this.data[i + 1].filter(Number.isFinite).length;
      this.chart.series[i + 1].points.size = dots <= 60 ? 6 : dots <= 200 ? 4 : 2.5;
    });
  }

  notePart({ min, max }, steps) {
    this.part = min > steps[0] || max < steps[steps.length - 1] ? [min, max] : null;
    this.area.dataset.part = this.part ? this.part.join(' ') : '';
  }

  settings() {
    const { format, series } = this.options;
    const filled = series.findIndex((one) => one.fill);
    return {
      width: Math.max(120, this.area.clientWidth),
      height: this.area.clientHeight,
      padding: [8, 20, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: true, y: false },
        sync: { key: 'steps', setSeries: false },
        points: { size: 7, width: 2, fill: color('panel') },
      },
      scales: {
        x: { time: false, range: (chart, low, high) => (low === high ? [low - 1, low + 1] : [low, high]) },
        // What is filled stands on 0; single values far above it do not press it flat.
        y: filled >= 0 ? { range: (chart, low, high) => [0, top(chart, filled + 1, high)] } : {},
      },
      axes: [axis(count, { size: 24, gap: 6, incrs: WHOLE }), axis(this.options.axis ?? format, { size: 52, gap: 6 })],
      series: [{}, ...series.map(seriesOf)],
      hooks: {
        setScale: [(chart, key) => key === 'x' && this.notePart(chart.scales.x, chart.data[0])],
        setCursor: [(chart) => this.tell(chart.cursor.idx ?? this.data[0].length - 1)],
      },
    };
  }

  tell(at) {
    const [steps, ...lists] = this.data;
    const parts = this.options.series
      .map((one, i) => [one, lists[i]?.[at]])
      .filter(([one, value]) => Number.isFinite(value) && !one.derived)
      .map(([one, value]) => `${one.dots ? `${one.label} ` : ''}${this.options.format(value)}`);
    this.about.textContent = `step ${count(steps[at])} · ${parts.join(' · ')}`;
  }

  fit() {
    if (!this.chart) return;
    if (this.chart instanceof SimpleChart) this.chart.draw();
    else this.chart.setSize({ width: Math.max(120, this.area.clientWidth), height: this.area.clientHeight });
  }

  close() {
    this.closed = true;
    this.resized.disconnect();
    document.removeEventListener('themechange', this.rebuild);
    this.chart?.destroy();
  }
}
