#!/usr/bin/env bash
# GitHub refuses a client that is above its limit with 403 or 429, and its documentation asks to wait as long as told.
# octokit's throttling obeys, and repeats a request once. Its plugin for retries takes a 429 for a failure, too: inside
# of the throttling it repeats it after 1, 4 and 9 s whatever `Retry-After` says, and so it does after the wait that was
# told. So one request becomes eight, of a client that GitHub may ban for going on. A 403 with the same words is sent
# twice. 429 has to be added to `retry.doNotRetry`.
. "$(dirname "$0")/setup"
with_node octokit@5.0.5
cat >try.mjs <<'JS'
import assert from 'node:assert';
import { once } from 'node:events';
import http from 'node:http';
import { Octokit } from 'octokit';

let status;
let times = [];
const server = http.createServer((_, response) => {
  times.push(Date.now());
  response.writeHead(status, { 'content-type': 'application/json', 'retry-after': '12' });
  response.end(JSON.stringify({ message: 'You have exceeded a secondary rate limit.' }));
}).listen(0, '127.0.0.1');
await once(server, 'listening');
const baseUrl = `http://127.0.0.1:${server.address().port}`;
const ignore = () => {};
const log = { debug: ignore, info: ignore, warn: ignore, error: ignore };

// The seconds between the requests that the server has seen.
async function waits(answer, retry) {
  status = answer;
  times = [];
  await assert.rejects(new Octokit({ baseUrl, log, retry }).request('GET /user'), { status: answer });
  const found = times.slice(1).map((time, index) => Math.round((time - times[index]) / 1000));
  console.log(`${answer} with Retry-After of 12 s: requests ${times.length}, seconds between them`, found);
  return found;
}
assert.deepEqual(await waits(403), [12]);
assert.deepEqual(await waits(429), [1, 4, 9, 12, 1, 4, 9]);
assert.deepEqual(await waits(429, { doNotRetry: [429] }), [12]);
process.exit(0);
JS
node try.mjs
