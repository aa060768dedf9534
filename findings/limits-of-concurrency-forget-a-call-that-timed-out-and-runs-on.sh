#!/usr/bin/env bash
# opossum's `capacity`, p-queue's `concurrency` and Bottleneck's `maxConcurrent` bound how many calls run. Each has a
# timeout beside it, and frees the place when that ends. The call itself runs on, as nothing ends a promise. So a slow
# service, for which there is such a limit, gets ten times the calls that were allowed, and more the slower it becomes.
# Without the timeout the limits hold. The timeout has to be the client's own, which ends the request.
. "$(dirname "$0")/setup"
with_node opossum@9.0.0 p-queue@9.3.5 bottleneck@2.19.5
cat >try.mjs <<'JS'
import assert from 'node:assert';
import Bottleneck from 'bottleneck';
import Breaker from 'opossum';
import PQueue from 'p-queue';

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let running = 0;
let most = 0;

// A service that takes two seconds, where the caller gives it 0.1.
async function call() {
  running += 1;
  most = Math.max(most, running);
  await sleep(2000);
  running -= 1;
}

// The most calls at once, if one is made each 50 ms, and two at once are allowed.
async function atOnce(name, limited) {
  most = 0;
  const all = [];
  for (let made = 0; made < 20; made += 1) {
    all.push(limited().catch(() => {}));
    await sleep(50);
  }
  await Promise.all(all);
  while (running > 0) await sleep(50);
  console.log(`${name}: two at once are allowed, ${most} ran`);
  return most;
}

for (const timeout of [undefined, 100]) {
  console.log('timeout:', timeout);
  const breaker = new Breaker(call, { capacity: 2, timeout: timeout ?? false, volumeThreshold: 1000 });
  const queue = new PQueue({ concurrency: 2, timeout });
  const bottleneck = new Bottleneck({ maxConcurrent: 2 });
  const found = [
    await atOnce('opossum', () => breaker.fire()),
    await atOnce('p-queue', () => queue.add(call)),
    await atOnce('Bottleneck', () => bottleneck.schedule({ expiration: timeout ?? null }, call)),
  ];
  assert.ok(found.every((count) => (timeout ? count >= 15 : count === 2)), `${found}`);
}
process.exit(0);
JS
node try.mjs
