// What the coordinator is asked for. Every request has a deadline.

const DEADLINE_MS = 15000;

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(method, path) {
  const options = { method, signal: AbortSignal.timeout(DEADLINE_MS), headers: {} };
  if (method !== 'GET') options.headers['X-Trireme'] = 'dashboard';
  const response = await fetch(path, options);
  let body = {};
  try {
    body = await response.json();
  } catch (broken) {
    if (response.ok) throw new Error('the answer is cut short', { cause: broken });
  }
  if (!response.ok) throw new Refused(response.status, body.error ?? `HTTP ${response.status}`);
  return body;
}

export const get = (path) => ask('GET', path);
export const post = (path) => ask('POST', path);

export const withQuery = (path, values) => {
  const query = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== '');
  return query.length ? `${path}?${new URLSearchParams(query)}` : path;
};
