// What the page asks of the service it is in.

const token = document.querySelector('meta[name=token]').content;
/** The process that the page shows. */
let process = '';

/** Reads an answer. Limits may have the names of what every other object has. */
const read = (text) => JSON.parse(text, (_, it) => (
  it !== null && typeof it === 'object' && !Array.isArray(it) ? Object.assign(Object.create(null), it) : it));

/** Has something done; throws an error that says in words why it was not. */
export const act = (what, body) => ask(what, {
  method: 'POST',
  headers: { 'content-type': 'application/json', 'x-ratelimit-token': token, 'x-ratelimit-process': process },
  body: JSON.stringify(body),
});

/** Asks for something, with the same errors. */
export async function ask(what, options) {
  let response;
  try {
    response = await fetch(what, options);
  } catch {
    throw new Error('the service does not answer');
  }
  const answer = await response.text().then(read).catch(() => ({}));
  if (!response.ok) throw new Error(answer.error ?? `the service answers ${response.status}`);
  return answer;
}

/**
 * Listens to what the service tells. The service ends each stream after a while; the browser asks
 * anew, and is told what it has missed.
 */
export function listen({ limits, counts, history, samples, lost }) {
  const events = new EventSource('events');
  const on = (name, tell) => events.addEventListener(name, (event) => tell(read(event.data)));
  on('limits', (view) => {
    process = view.process_id;
    limits(view);
  });
  on('counts', counts);
  on('history', history);
  on('samples', samples);
  events.addEventListener('error', () => {
    // Otherwise the browser is about to ask again by itself.
    if (events.readyState !== EventSource.CLOSED) return;
    lost();
    setTimeout(() => listen({ limits, counts, history, samples, lost }), 3000);
  });
}
