// What happened, newest first.
import { h, list } from './dom.js';
import { clock, dateAndClock, grouped } from './format.js';

const MOST = 300;

// Ascending: of a job's checkpoints that follow one another the newest says it all, and lets failures stay in view.
export function newestCheckpoints(events) {
  const last = new Map(); // of each job its last event, where that is a checkpoint
  const kept = new Set();
  for (const event of events) {
    if (event.job) {
      const before = last.get(event.job);
      if (before && event.kind === 'checkpoint') kept.delete(before);
      if (event.kind === 'checkpoint') last.set(event.job, event);
      else last.delete(event.job);
    }
    kept.add(event);
  }
  return [...kept];
}

export class EventList {
  // `names`: of the jobs, where their events are mixed.
  constructor(names = null) {
    this.events = [];
    this.names = names;
    this.last = 0;
    this.element = h('div', { class: 'events' });
    this.element.append(h('div', { class: 'empty' }, 'Nothing has happened yet.'));
  }

  // Ascending; what is known already is passed over.
  add(events) {
    const fresh = events.filter((event) => event.sequence > this.last);
    if (fresh.length === 0) return;
    this.last = fresh[fresh.length - 1].sequence;
    this.events = newestCheckpoints([...this.events.reverse(), ...fresh]).reverse().slice(0, MOST);
    this.element.querySelector('.empty')?.remove();
    list(this.element, this.events, (event) => event.sequence, (event) => this.make(event), () => {});
  }

  // Where the job was last; the newest event is the first.
  lastAllocation() {
    return this.events.find((event) => event.allocation?.length)?.allocation ?? [];
  }

  make(event) {
    const name = this.names?.get(event.job);
    const job = this.names && event.job
      ? [' ', h('a', { href: `#/jobs/${event.job}` }, name ? `${name} (${event.job})` : `job ${event.job}`), ' '] : ' ';
    return h('div', { class: 'event', data: { level: event.level, kind: event.kind } },
      h('time', { title: dateAndClock(event.ms) }, clock(event.ms)), h('i'),
      h('p', {}, h('b', {}, event.kind), job, h('span', { class: 'muted' }, grouped(event.text))));
  }
}
