#!/usr/bin/env bash
# koa-ratelimit keeps the wait of its message in milliseconds of 32 bits: a limit of 30 days, refused at once, says "retry
# in -20 days", while the `Retry-After` beside it has the 2 591 999 seconds. Who reads the body, a person or a model, takes
# it for over, and comes back at once. Limits of up to 24 days are told as they are.
. "$(dirname "$0")/setup"
with_node koa@3.3.0 koa-ratelimit@6.0.0
node - <<'JS'
const assert = require('node:assert');
const Koa = require('koa');
const ratelimit = require('koa-ratelimit');

async function refusal(days) {
  const app = new Koa();
  const duration = days * 24 * 60 * 60 * 1000;
  app.use(ratelimit({ driver: 'memory', db: new Map(), duration, max: 1, id: () => 'alice' }));
  app.use((context) => { context.body = 'hi'; });
  const server = app.listen(0);
  const url = `http://127.0.0.1:${server.address().port}/`;
  await (await fetch(url)).text();
  const refused = await fetch(url);
  const text = await refused.text();
  console.log(`${days} days:`, refused.status, 'Retry-After', refused.headers.get('retry-after'), '|', text);
  server.closeAllConnections();
  server.close();
  return [refused.status, Number(refused.headers.get('retry-after')), text];
}

(async () => {
  const [status, wait, text] = await refusal(30);
  assert.strictEqual(status, 429);
  assert(wait > 29.9 * 86400);
  assert.match(text, /retry in -20 days/);
  const [, , short] = await refusal(20);
  assert.match(short, /retry in 20 days/);
})();
JS
