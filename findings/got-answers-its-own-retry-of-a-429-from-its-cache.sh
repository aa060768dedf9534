#!/usr/bin/env bash
# A 429 must not be stored by a cache, by RFC 6585. got and undici store it all the same if it has a `max-age`, as behind
# a middleware that sets the field on every answer. got waits for `Retry-After` as told, and then asks its own cache: it
# fails after three tries of which the server has seen one. Both refuse for a minute where the server asked for a second.
. "$(dirname "$0")/setup"
with_node got@16.1.0 undici@8.13.1 node@24.9.0
cat >try.mjs <<'JS'
import assert from 'node:assert';
import { once } from 'node:events';
import http from 'node:http';
import got from 'got';
import { Agent, interceptors, request } from 'undici';

console.log('Node', process.version);
let seen = 0;
const server = http.createServer((_, response) => {
  seen += 1;
  response.writeHead(seen === 1 ? 429 : 200, { 'cache-control': 'max-age=60', 'retry-after': '1' });
  response.end('{}');
}).listen(0, '127.0.0.1');
await once(server, 'listening');
const url = `http://127.0.0.1:${server.address().port}/`;

async function byGot(cache) {
  seen = 0;
  const start = Date.now();
  let response;
  try {
    response = await got(url, { cache });
  } catch (error) {
    response = error.response;
  }
  const { statusCode, retryCount, isFromCache } = response;
  const waited = Math.round((Date.now() - start) / 1000);
  console.log(`got ${cache ? 'with' : 'without'} a cache:`, { statusCode, retryCount, isFromCache, waited, seen });
  return [statusCode, retryCount, isFromCache, seen];
}
assert.deepEqual(await byGot(undefined), [200, 1, false, 2]);
assert.deepEqual(await byGot(new Map()), [429, 2, true, 1]);

async function byUndici(dispatcher) {
  seen = 0;
  const statuses = [];
  for (let calls = 0; calls < 3; calls += 1) {
    const response = await request(url, { dispatcher });
    await response.body.dump();
    statuses.push(response.statusCode);
    await new Promise((resolve) => setTimeout(resolve, 1100));
  }
  return [statuses, seen];
}
const [statuses, requests] = await byUndici(new Agent().compose(interceptors.cache({ type: 'private' })));
console.log('undici with a cache, a call each 1.1 s:', statuses, 'seen', requests);
assert.deepEqual([statuses, requests], [[429, 429, 429], 1]);
process.exit(0);
JS
node_modules/.bin/node try.mjs
