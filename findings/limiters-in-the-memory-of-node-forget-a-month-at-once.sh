#!/usr/bin/env bash
# A timer of Node has room for 24.8 days: a longer one runs after a millisecond. rate-limiter-flexible and
# hono-rate-limiter end the windows of their memory by timers, so that a limit of one call in 30 days admits every call.
# Warnings of Node name no limiter. express-rate-limit prints an error of its own, and admits them too.
# The same limit of 24 days holds in all three.
. "$(dirname "$0")/setup"
with_node rate-limiter-flexible@11.4.0 hono-rate-limiter@0.5.4 hono@4.13.19 express-rate-limit@8.7.5 express@5.3.0
cat >try.mjs <<'JS'
import assert from 'node:assert';
import express from 'express';
import { rateLimit } from 'express-rate-limit';
import { Hono } from 'hono';
import { rateLimiter } from 'hono-rate-limiter';
import { RateLimiterMemory } from 'rate-limiter-flexible';

const DAY = 86_400_000;
const limiters = {
  'rate-limiter-flexible'(window) {
    const limiter = new RateLimiterMemory({ points: 1, duration: window / 1000 });
    return () => limiter.consume('alice').then(() => true, () => false);
  },
  'hono-rate-limiter'(window) {
    const app = new Hono();
    app.use(rateLimiter({ windowMs: window, limit: 1, keyGenerator: () => 'alice' }));
    app.get('/', (context) => context.text('hello'));
    return async () => (await app.request('/')).status === 200;
  },
  async 'express-rate-limit'(window) {
    const app = express().use(rateLimit({ windowMs: window, limit: 1 }));
    app.get('/', (_, response) => response.send('hello'));
    const server = await new Promise((resolve) => { const it = app.listen(0, '127.0.0.1', () => resolve(it)); });
    const url = `http://127.0.0.1:${server.address().port}/`;
    return async () => (await fetch(url)).status === 200;
  },
};
for (const [name, limiter] of Object.entries(limiters)) {
  for (const days of [24, 30]) {
    const call = await limiter(days * DAY);
    const admitted = [];
    for (let calls = 0; calls < 3; calls += 1) {
      admitted.push(await call());
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    console.log(`${name}, one call in ${days} days:`, admitted);
    assert.deepEqual(admitted, days === 24 ? [true, false, false] : [true, true, true]);
  }
}
process.exit(0);
JS
node try.mjs
