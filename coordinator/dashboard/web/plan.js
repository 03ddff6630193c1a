// The plan: ranks in their mesh, the layers of each stage, bytes of each.
import { draw, h } from './dom.js';
import { bytes, count } from './format.js';
import { colorOfJob } from './overview.js';

const MOST_STAGES = 8;
// Of a stage: numbers fit into a few wide cells; more are small squares, whose titles have them.
// Beyond `across` a replica goes on in the next line.
const NUMBERED = { replicas: 8, tensors: 4, across: 4, width: 32 };
const SMALL = { replicas: 32, tensors: 32, across: 16, width: 12 };
const PARTS = [
  ['parameters', 'parameters', 'forward'],
  ['gradients', 'gradients', 'input-grad'],
  ['optimizer', 'optimizer', 'optimizer'],
  ['activations', 'activations', 'weight-grad'],
  ['boundaries', 'between stages', 'reduce'],
  ['temporaries', 'temporary', 'load'],
];
const TOLD = ['job', 'schedule', 'bubble']; // elsewhere on the page
const BESIDE = 'beside the arena: code, libraries, MPI buffers';
const SUMMED = { temporaries: ['temporaries', 'scratch', 'other'] };

const bytesOf = (stage, part) => (SUMMED[part] ?? [part]).reduce((total, name) => total + stage.bytes[name], 0);

// The first and the last of many.
function ends(items, most) {
  if (items.length <= most) return [items, [], 0];
  const half = most / 2;
  return [items.slice(0, half), items.slice(-half), items.length - most];
}

// Nodes by rank: an allocation is runs of ranks.
function nodeOfRank(allocation) {
  const bounds = [];
  let end = 0;
  allocation.forEach((place, index) => {
    end += place.ranks;
    bounds.push({ end, node: place.node, index });
  });
  return (rank) => bounds.find((bound) => rank < bound.end);
}

function cell(rank, where, node, small) {
  const text = `rank ${rank}: stage ${where[0]}, replica ${where[1]}, tensor ${where[2]}${node ? `, on ${node.node}` : ''}`;
  return h('i', { class: 'cell', title: text, style: node ? { [small ? 'background' : 'borderBottomColor']: colorOfJob(node.index) } : {} },
    small ? null : String(rank));
}

const cellsOf = ({ data, tensor }) => (data > NUMBERED.replicas || tensor > NUMBERED.tensors ? SMALL : NUMBERED);

function stageColumn(stage, plan, nodeOf) {
  const { data, tensor } = plan.mesh;
  const most = cellsOf(plan.mesh);
  const across = Math.min(tensor, most.across);
  const rows = [];
  for (let replica = 0; replica < Math.min(data, most.replicas); ++replica) {
    const cells = Array.from({ length: Math.min(tensor, most.tensors) }, (_, part) => {
      const rank = (stage.stage * data + replica) * tensor + part;
      return cell(rank, [stage.stage, replica, part], nodeOf(rank), most === SMALL);
    });
    rows.push(h('div', { class: 'replica', style: { gridTemplateColumns: `repeat(${across}, minmax(0, 1fr))` } }, cells));
  }
  const hidden = data * tensor - rows.length * Math.min(tensor, most.tensors);
  const kind = `${most === SMALL ? ' small' : ''}${tensor > across ? ' folded' : ''}`;
  return h('div', { class: `column${kind}` }, h('b', {}, `stage ${stage.stage}`),
    h('div', { class: 'blocks', title: stage.blocks.join('; ') }, stage.blocks.map((block) => h('span', {}, block))),
    h('div', { class: 'ranks' }, rows),
    hidden > 0 ? h('div', { class: 'faint' }, `and ${count(hidden)} more`) : null);
}

const leastWidth = (mesh) => Math.max(104, 26 + Math.min(mesh.tensor, cellsOf(mesh).across) * cellsOf(mesh).width);

// What rows and cells are.
function shapeText({ data, tensor }) {
  if (data > 1 && tensor > SMALL.across) return 'lines close together are a replica (data parallel), its cells are tensor ranks';
  if (data > 1 && tensor > 1) return 'a row is a replica (data parallel), its cells are tensor ranks';
  if (data > 1) return 'a row is a replica (data parallel)';
  return tensor > 1 ? 'cells of a stage are tensor ranks' : '';
}

function gap(number) {
  return h('div', { class: 'column gap' }, `${count(number)} more`);
}

export class PlanPanels {
  constructor() {
    this.about = h('div', { class: 'about' });
    this.picture = h('div', {});
    this.plan = null;
    this.used = {};
    this.memory = h('div', { class: 'memory' });
    this.legend = h('div', { class: 'legend' });
    this.measure = h('div', { class: 'about' });
    this.mesh = h('section', { class: 'panel w7', id: 'mesh' },
      h('div', { class: 'head' }, h('h2', {}, 'Mesh and stages'), this.about), this.picture);
    this.bytes = h('section', { class: 'panel w5', id: 'memory' },
      h('div', { class: 'head' }, h('h2', {}, 'Memory of a rank'), this.measure), this.memory, this.legend);
    this.file = h('section', { class: 'panel' }, h('details', { class: 'file' }, h('summary', {}, 'Job file, as resolved'), h('pre', {})));
    this.wait('Drawn when the job is planned.');
  }

  wait(text) {
    this.file.hidden = true;
    for (const area of [this.picture, this.memory]) draw(area, text, () => h('div', { class: 'empty' }, text));
    this.legend.replaceChildren();
  }

  setData(plan, allocation) {
    this.plan = plan;
    draw(this.picture, [plan, allocation], () => this.drawMesh(plan, allocation));
    draw(this.memory, [plan.stages, this.used], () => this.drawMemory(plan));
    this.file.hidden = false;
    this.file.querySelector('pre').textContent = plan.yaml;
    this.about.textContent = `${plan.schedule} · ${plan.micro_batches} micro-batches · bubble ${(100 * plan.bubble).toFixed(1)} % of busy time`;
  }

  // What the processes of each stage have taken at most, as its ranks tell.
  setUsed(ranks) {
    if (!this.plan) return;
    const { data, tensor } = this.plan.mesh;
    const used = {};
    for (const rank of ranks) {
      const stage = Math.floor(rank.rank / (data * tensor));
      if (rank.peak_bytes > 0) used[stage] = Math.max(used[stage] ?? 0, rank.peak_bytes);
    }
    this.used = used;
    draw(this.memory, [this.plan.stages, used], () => this.drawMemory(this.plan));
  }

  drawMesh(plan, allocation) {
    const nodeOf = nodeOfRank(allocation);
    const [first, last, hidden] = ends(plan.stages, MOST_STAGES);
    const missing = hidden + plan.stage_count - plan.stages.length;
    const columns = [...first.map((stage) => stageColumn(stage, plan, nodeOf)), missing > 0 ? gap(missing) : null,
      ...last.map((stage) => stageColumn(stage, plan, nodeOf))];
    return [
      h('div', { class: 'columns', style: { gridTemplateColumns: `repeat(auto-fit, minmax(${leastWidth(plan.mesh)}px, 1fr))` } }, columns),
      h('div', { class: 'legend below' }, shapeText(plan.mesh), allocation.slice(0, 12).map((place, index) =>
        h('span', {}, h('i', { style: { background: colorOfJob(index) } }), place.node))),
      h('dl', { class: 'facts' }, plan.summary.filter(([name]) => !TOLD.includes(name)).map(([name, value]) =>
        [h('dt', {}, name), h('dd', {}, value)])),
    ];
  }

  drawMemory(plan) {
    const used = this.used;
    const most = Math.max(1, ...plan.stages.map((stage) => stage.bytes.total), ...Object.values(used));
    // Less than nothing, where a rank has not touched all of its arena.
    const beside = (stage) => (used[stage.stage] ?? 0) - stage.bytes.total;
    const width = (size) => `${(100 * size) / most}%`;
    const [first, last, hidden] = ends(plan.stages, 16);
    const row = (stage) => h('div', { class: 'stage' }, h('div', { class: 'what' }, `stage ${stage.stage}`),
      h('div', {},
        h('div', { class: 'stack' }, PARTS.map(([part, label, tone]) => {
          const size = bytesOf(stage, part);
          return h('i', { title: `${label}: ${bytes(size)}`, style: { width: width(size), background: `var(--${tone})` } });
        }), beside(stage) > 0
          ? h('i', { class: 'beside', title: `${BESIDE}: ${bytes(beside(stage))}`, style: { width: width(beside(stage)) } }) : null)),
      h('div', { class: 'bytes' }, bytes(stage.bytes.total),
        used[stage.stage] ? h('div', { class: 'faint' }, `of ${bytes(used[stage.stage])}`) : null));
    const told = Object.keys(used).length > 0;
    this.measure.textContent = told ? 'planned, of the process at its peak' : 'planned';
    this.legend.replaceChildren(...PARTS.map(([, label, tone]) =>
      h('span', {}, h('i', { style: { background: `var(--${tone})` } }), label)),
    told ? h('span', {}, h('i', { class: 'beside' }), BESIDE) : '');
    return [...first.map(row), hidden ? h('div', { class: 'faint' }, `${hidden} more`) : null, ...last.map(row)];
  }
}
