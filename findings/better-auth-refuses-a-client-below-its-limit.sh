#!/usr/bin/env bash
# Better Auth limits its own routes. In memory it ends a window when none of the client's requests was served for the
# whole window, and not when the window is over. So three in ten seconds refuse every fourth request of a client that
# sends one in nine seconds, and a page that asks once in 50 seconds fails after 83 minutes at 100 a minute. The wait
# stands in `X-Retry-After`, which common clients do not read. The same limit in a secondary storage, such as Redis,
# refuses none of them.
. "$(dirname "$0")/setup"
with_node better-auth@1.7.25
cat >try.mjs <<'JS'
import assert from 'node:assert';
import { betterAuth } from 'better-auth';

let now = 1_900_000_000_000;
Date.now = () => now;
const kept = new Map();
const current = (key) => (kept.get(key)?.end > now ? kept.get(key) : undefined);
const secondaryStorage = {
  get: (key) => current(key)?.value ?? null,
  set: (key, value, ttl) => { kept.set(key, { value, end: now + (ttl ?? Infinity) * 1000 }); },
  delete: (key) => { kept.delete(key); },
  increment: (key, ttl) => {
    const { value, end } = current(key) ?? { value: 0, end: now + ttl * 1000 };
    kept.set(key, { value: value + 1, end });
    return value + 1;
  },
};

async function statuses(storage, max, window, every, requests) {
  const auth = betterAuth({
    baseURL: 'http://localhost', secret: 'a secret that is long enough to be one', logger: { disabled: true },
    rateLimit: { enabled: true, window, max, storage }, secondaryStorage,
    advanced: { ipAddress: { ipAddressHeaders: ['x-client'] } },
  });
  const found = [];
  for (let sent = 0; sent < requests; sent += 1) {
    const headers = { 'x-client': `192.0.2.${max}` };
    const response = await auth.handler(new Request('http://localhost/api/auth/ok', { headers }));
    found.push(response.status);
    if (response.status === 429) assert.equal(response.headers.get('retry-after'), null);
    now += every * 1000;
  }
  return found;
}

for (const storage of ['memory', 'secondary-storage']) {
  const found = await statuses(storage, 3, 10, 9, 12);
  const first = (await statuses(storage, 100, 60, 50, 120)).indexOf(429);
  console.log(`${storage}: three in 10 s, one in 9 s sent:`, found.join(' '));
  console.log(`${storage}: 100 in 60 s, one in 50 s sent, first refused:`, first < 0 ? 'none' : `number ${first + 1}`);
  const memory = storage === 'memory';
  assert.deepEqual(found, Array(3).fill(memory ? [200, 200, 200, 429] : Array(4).fill(200)).flat());
  assert.equal(first, memory ? 100 : -1);
}
process.exit(0);
JS
node try.mjs
