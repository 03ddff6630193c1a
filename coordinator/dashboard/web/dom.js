// Elements in one expression; text is always text, never markup.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'style') Object.assign(element.style, value);
    else if (name === 'data') Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

export const byId = (id) => document.getElementById(id);

// Draws `element` anew, but only if what it shows has changed: what is read or pointed at stays.
const shown = new WeakMap();
export function draw(element, what, make) {
  const signature = JSON.stringify(what);
  if (shown.get(element) === signature) return false;
  shown.set(element, signature);
  const made = make();
  element.replaceChildren(...(Array.isArray(made) ? made.filter(Boolean) : [made]));
  return true;
}

// One child per item, by key, in order; children are kept and updated rather than made again.
export function list(element, items, keyOf, make, update) {
  const kept = new Map([...element.children].map((child) => [child.dataset.key, child]));
  const wanted = items.map((item) => {
    const key = String(keyOf(item));
    const child = kept.get(key) ?? make(item);
    child.dataset.key = key;
    update(child, item);
    return child;
  });
  const same = wanted.length === element.children.length && wanted.every((child, i) => element.children[i] === child);
  if (!same) element.replaceChildren(...wanted);
}

// The value of a colour variable of the theme.
export const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export function toast(text, level = 'info') {
  const one = h('div', { class: 'toast', data: { level } }, text);
  byId('toasts').append(one);
  setTimeout(() => one.remove(), level === 'bad' ? 9000 : 4000);
}
