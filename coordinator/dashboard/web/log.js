// What a rank wrote, from its end on.
import { Refused, get, withQuery } from './api.js';
import { h } from './dom.js';

const TAIL = 32 * 1024;
const MOST = 256 * 1024;
const MOST_RANKS = 256;
const PIECES = 8; // of one refresh

export class Log {
  constructor(job) {
    this.job = job;
    this.text = h('pre', { class: 'log', tabindex: '0' });
    this.about = h('span', {});
    this.choice = h('select', { 'aria-label': 'Whose log', onchange: () => this.begin() });
    this.element = h('section', { class: 'panel w7', id: 'log' },
      h('div', { class: 'head' }, h('h2', {}, 'Log'), h('div', { class: 'tools' }, this.about, this.choice)), this.text);
    this.setEnded(false);
    this.begin();
  }

  // `why` there is nothing: empty, it wrote nothing.
  setEnded(ended, why = '') {
    this.text.dataset.empty = why ? why : ended ? 'It wrote nothing.' : 'Nothing written so far.';
  }

  begin() {
    this.next = -TAIL;
    this.attempt = 0;
    this.text.textContent = '';
    this.hurry = true;
  }

  setRanks(ranks) {
    const wanted = Math.min(ranks, MOST_RANKS) + 1;
    if (this.choice.options.length === wanted) return;
    const options = [h('option', { value: -1 }, 'launcher')];
    for (let rank = 0; rank < wanted - 1; ++rank) options.push(h('option', { value: rank, selected: rank === 0 }, `rank ${rank}`));
    this.choice.replaceChildren(...options);
  }

  // True: all there is has been read.
  async refresh() {
    this.hurry = false;
    for (let piece = 0; piece < PIECES; ++piece) {
      let answer;
      try {
        answer = await get(withQuery(`/api/jobs/${this.job}/log`, { rank: this.choice.value, offset: this.next }));
      } catch (error) {
        if (!(error instanceof Refused) || ![400, 409].includes(error.status)) throw error;
        this.about.textContent = 'not started yet';
        return true;
      }
      if (this.attempt && (answer.attempt !== this.attempt || answer.size < this.next)) this.begin();
      else this.append(answer);
      if (this.next >= answer.size) return true;
    }
    return false;
  }

  append(answer) {
    this.attempt = answer.attempt;
    this.next = answer.next;
    this.about.textContent = `attempt ${answer.attempt}`;
    if (!answer.text) return;
    const atEnd = this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight < 40;
    const text = this.text.textContent + answer.text;
    this.text.textContent = text.length > MOST ? text.slice(-MOST) : text;
    if (atEnd) this.text.scrollTop = this.text.scrollHeight;
  }
}
