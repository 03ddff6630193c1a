// The cluster: figures, the map of nodes, what happened.
import { draw, h } from './dom.js';
import { ago, bytes, count, dateAndClock, percent, plural } from './format.js';
import { EventList } from './events.js';

const COLORS = ['forward', 'weight-grad', 'input-grad', 'optimizer', 'reduce', 'accent', 'blue', 'amber'];
const MOST_CELLS = 96;

export const colorOfJob = (id) => `var(--${COLORS[id % COLORS.length]})`;

const sum = (nodes, field) => nodes.reduce((total, node) => total + node[field], 0);

function tile(label, value, unit, about, part) {
  return h('div', { class: 'tile', title: `${label}: ${[value, unit, about].filter(Boolean).join(' ')}` }, h('div', { class: 'label' }, label),
    h('div', { class: 'value' }, value, unit ? h('small', {}, ` ${unit}`) : null),
    about ? h('div', { class: 'more-about' }, about) : null,
    Number.isFinite(part) ? h('div', { class: 'bar' }, h('i', { style: { width: `${100 * part}%` } })) : null);
}

function tiles(cluster) {
  const nodes = cluster.nodes;
  const ready = nodes.filter((node) => node.state === 'ready').length;
  const drained = nodes.filter((node) => node.state === 'ready' && node.drained).length;
  const cpus = sum(nodes, 'cpus');
  const memory = sum(nodes, 'memory_bytes');
  const gpus = sum(nodes, 'gpus');
  return [
    tile('Nodes ready', count(ready), `of ${nodes.length}${drained ? `, ${count(drained)} drained` : ''}`, '', nodes.length ? ready / nodes.length : NaN),
    tile('Jobs running', count(cluster.jobs_running), '', `${count(cluster.jobs_pending)} waiting`),
    tile('CPUs taken', count(sum(nodes, 'cpus_used')), `of ${count(cpus)}`, '', cpus ? sum(nodes, 'cpus_used') / cpus : NaN),
    tile('Memory taken', bytes(sum(nodes, 'memory_bytes_used')), `of ${bytes(memory)}`, '',
      memory ? sum(nodes, 'memory_bytes_used') / memory : NaN),
    gpus ? tile('GPUs taken', count(sum(nodes, 'gpus_used')), `of ${count(gpus)}`, '', sum(nodes, 'gpus_used') / gpus) : null,
  ];
}

// CPUs in the colours of the jobs that have them. Others are taken too: by jobs that this person may not see.
function cells(node) {
  const shown = Math.min(node.cpus, MOST_CELLS);
  // Of a node that has not dialled in yet nobody knows how many it has.
  const perCell = Math.max(1, node.cpus) / Math.max(1, shown);
  const taken = node.cpus_used > 0 ? Math.min(shown, Math.max(1, Math.round(node.cpus_used / perCell))) : 0;
  const owners = [];
  let cpus = 0;
  for (const job of node.jobs) {
    cpus += job.cpus;
    // By where its share ends, so that what is rounded does not add up.
    while (owners.length < Math.min(taken, Math.round(cpus / perCell))) owners.push(job);
  }
  return h('div', { class: 'cells', role: 'img', 'aria-label': `${node.cpus_used} of ${node.cpus} CPUs taken` },
    Array.from({ length: shown }, (_, i) => {
      if (i >= taken) return h('i');
      if (!owners[i]) return h('i', { class: 'taken', title: 'taken by another job' });
      return h('i', { class: 'taken', title: owners[i].name, style: { background: colorOfJob(owners[i].id) } });
    }));
}

// As `trireme nodes` has it.
function whyNot(node) {
  if (!node.drained && !node.reason) return node.unable ?? '';
  if (!node.drained || !node.drained_by) return node.reason;
  return `drained by ${node.drained_by}, ${dateAndClock(node.drained_ms)}${node.reason ? `: ${node.reason}` : ''}`;
}

function nodeCard(node, now) {
  const state = node.state !== 'ready' ? node.state : node.drained ? 'drained' : 'ready';
  const heard = state !== 'lost' ? state : node.reported_ms > 0 ? `silent, last report ${ago(node.reported_ms, now)}` : 'has not come back';
  return h('div', { class: 'node', data: { state, node: node.name } },
    h('div', { class: 'line' }, h('span', { class: 'name', title: node.name }, node.name), h('span', { class: 'state' }, heard)),
    cells(node),
    h('div', { class: 'figures-of' },
      h('span', {}, `${node.cpus_used} / ${node.cpus || '?'} CPUs`),
      node.gpus ? h('span', {}, `${node.gpus_used} / ${node.gpus} GPUs`) : null,
      node.memory_bytes ? h('span', {}, `${percent(node.memory_bytes_used / node.memory_bytes)} of ${bytes(node.memory_bytes)}`) : null),
    node.jobs.length ? h('div', { class: 'on' }, node.jobs.map((job) =>
      h('a', { href: `#/jobs/${job.id}`, title: `job ${job.id}: ${job.name}, ${plural(job.ranks, 'rank')}, ${plural(job.cpus, 'CPU')}` },
        h('i', { style: { background: colorOfJob(job.id) } }),
        h('span', {}, `${job.name} · ${plural(job.ranks, 'rank')}${job.cpus > job.ranks ? `, ${count(job.cpus)} CPUs` : ''}`)))) : null,
    whyNot(node) ? h('div', { class: 'reason' }, whyNot(node)) : null);
}

export class Overview {
  // `names`: of the jobs.
  constructor(names) {
    this.events = new EventList(names);
    this.tiles = h('div', { class: 'tiles' });
    this.nodes = h('div', { class: 'nodes' });
    this.element = h('div', {},
      h('div', { class: 'title' }, h('div', { class: 'text' }, h('h1', {}, 'Cluster'))),
      this.tiles,
      h('div', { class: 'grid' },
        h('section', { class: 'panel' }, h('div', { class: 'head' }, h('h2', {}, 'Nodes')), this.nodes),
        h('section', { class: 'panel' }, h('div', { class: 'head' }, h('h2', {}, 'What happened')), this.events.element)));
  }

  async refresh(state) {
    const cluster = state.cluster;
    this.events.add(state.events);
    const { jobs_running: running, jobs_pending: pending, nodes } = cluster;
    const silent = nodes.filter((node) => node.state === 'lost').map((node) => ago(node.reported_ms, state.now));
    const seen = nodes.map((node) => ({ ...node, reported_ms: 0 }));
    draw(this.tiles, [seen, running, pending], () => tiles(cluster));
    draw(this.nodes, [seen, silent], () => (nodes.length
      ? nodes.map((node) => nodeCard(node, state.now))
      : h('div', { class: 'empty' }, 'No nodes yet. One joins when trireme-agent is started on it.')));
  }

  close() {}
}
