// Numbers and times for people.

export function count(value) {
  return Number.isFinite(value) ? Math.round(value).toLocaleString('en-US') : '-';
}

// Steps in a sentence as they are written elsewhere: "step 12345" as "step 12,345".
export const grouped = (text) => text.replace(/\bstep (\d+)/g, (_, step) => `step ${count(Number(step))}`);

// 12,345 as 12.3k.
export function short(value) {
  if (!Number.isFinite(value)) return '-';
  const units = ['', 'k', 'M', 'G', 'T', 'P'];
  let unit = 0;
  let left = value;
  while (Math.abs(left) >= 999.5 && unit < units.length - 1) {
    left /= 1000;
    unit += 1;
  }
  const digits = unit === 0 && Number.isInteger(value) ? 0 : Math.abs(left) < 10 ? 2 : Math.abs(left) < 100 ? 1 : 0;
  return left.toFixed(digits) + units[unit];
}

export function loss(value) {
  if (!Number.isFinite(value)) return '-';
  return Math.abs(value) >= 1e4 ? value.toExponential(2) : value.toFixed(4);
}

// On an axis, where the ticks are round.
export const plain = (value) => (Math.abs(value) >= 1e4 ? value.toExponential(1) : String(Number(value.toFixed(4))));

export function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  let left = value;
  while (left >= 1024 && unit < units.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? left : left.toFixed(left < 10 ? 2 : left < 100 ? 1 : 0)} ${units[unit]}`;
}

export function percent(share) {
  if (!Number.isFinite(share)) return '-';
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return '-';
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 600) return `${Math.floor(s / 60)} min ${s % 60 ? `${s % 60} s` : ''}`.trim();
  if (s < 3600) return `${Math.round(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// Coarse, so that a list does not flicker.
export function ago(ms, now) {
  if (!ms) return '-';
  const s = Math.max(0, (now - ms) / 1000);
  if (s < 10) return 'just now';
  if (s < 60) return `${Math.floor(s / 10) * 10} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
  return `${Math.floor(s / 86400)} d ago`;
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString('en-GB');
}

export function dateAndClock(ms) {
  const date = new Date(ms);
  return `${date.toLocaleDateString('en-CA')} ${date.toLocaleTimeString('en-GB')}`;
}

export function milliseconds(us) {
  if (us < 1000) return `${us} µs`;
  if (us < 1e6) return `${(us / 1000).toFixed(us < 1e4 ? 2 : us < 1e5 ? 1 : 0)} ms`;
  return `${(us / 1e6).toFixed(2)} s`;
}

export const plural = (number, one) => `${count(number)} ${one}${number === 1 ? '' : 's'}`;
