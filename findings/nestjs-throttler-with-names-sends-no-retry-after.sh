#!/usr/bin/env bash
# NestJS's documentation gives names to several limits of one service. A refusal by one of them tells the wait in a
# field of that name, such as `Retry-After-short`, and there is no `Retry-After`. Clients do not know such a field: got,
# which should wait ten seconds, comes back after one and after three, is refused each time, and gives up. A limit
# without a name sends the real field, and got is served at its first retry.
. "$(dirname "$0")/setup"
with_node @nestjs/common@12.5.1 @nestjs/core@12.5.1 @nestjs/platform-express@12.5.1 @nestjs/throttler@6.7.1 \
  reflect-metadata@0.2.2 rxjs@7.8.2 got@16.1.0
cat >try.mjs <<'JS'
import 'reflect-metadata';
import assert from 'node:assert';
import { Controller, Get, Module } from '@nestjs/common';
import { APP_GUARD, NestFactory } from '@nestjs/core';
import { ThrottlerGuard, ThrottlerModule } from '@nestjs/throttler';
import got from 'got';

async function start(throttlers) {
  class Hello { get() { return 'hello'; } }
  Get()(Hello.prototype, 'get', Object.getOwnPropertyDescriptor(Hello.prototype, 'get'));
  Controller()(Hello);
  class App {}
  Module({
    imports: [ThrottlerModule.forRoot({ throttlers })],
    controllers: [Hello],
    providers: [{ provide: APP_GUARD, useClass: ThrottlerGuard }],
  })(App);
  const app = await NestFactory.create(App, { logger: false });
  let seen = 0;
  app.use((_, __, next) => { seen += 1; next(); });
  await app.listen(0, '127.0.0.1');
  return { url: await app.getUrl(), seen: () => seen };
}

for (const name of ['short', undefined]) {
  const { url, seen } = await start([{ name, ttl: 10_000, limit: 1 }, { name: 'long', ttl: 86_400_000, limit: 1000 }]);
  assert.equal((await fetch(url)).status, 200);
  const refused = await fetch(url);
  const fields = [...refused.headers].filter(([field]) => field.startsWith('retry-after'));
  const { statusCode } = await got(url, { throwHttpErrors: false });
  // Without the two by fetch.
  const requests = seen() - 2;
  console.log(`name ${name}: a refusal has`, fields, `and got ends with ${statusCode} after ${requests} requests`);
  assert.equal(refused.status, 429);
  assert.deepEqual(fields, [[name ? 'retry-after-short' : 'retry-after', '10']]);
  assert.deepEqual([statusCode, requests], name ? [429, 3] : [200, 2]);
}
process.exit(0);
JS
node try.mjs
