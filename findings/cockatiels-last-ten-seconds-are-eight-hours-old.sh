#!/usr/bin/env bash
# Cockatiel's circuit breaker, by which a client leaves a service alone that refuses it, can sample the calls of the
# last ten seconds. Its windows move on with the calls and not with the time: the next call, however late, replaces
# only the oldest window. So one failure in the morning opens the circuit, as nine of the night count with it,
# although ten within ten seconds are asked for. And a hundred good calls of the night keep it closed while 90 calls
# in nine seconds fail.
. "$(dirname "$0")/setup"
with_node cockatiel@4.0.0 @sinonjs/fake-timers@15.5.0
cat >try.mjs <<'JS'
import assert from 'node:assert';
import timers from '@sinonjs/fake-timers';
import { CircuitState, SamplingBreaker, circuitBreaker, handleAll } from 'cockatiel';

const clock = timers.install({ toFake: ['Date'] });

// A circuit that opens if more than half of at least ten calls in ten seconds fail.
function service() {
  const breaker = new SamplingBreaker({ threshold: 0.5, duration: 10_000, minimumRps: 1 });
  const circuit = circuitBreaker(handleAll, { halfOpenAfter: 60_000, breaker });
  return async (count, fails) => {
    for (let calls = 0; calls < count; calls += 1) {
      await circuit.execute(() => { if (fails) throw new Error('429'); }).catch(() => {});
    }
    return CircuitState[circuit.state];
  };
}

async function failing(call) {
  let state;
  for (let second = 0; second < 9; second += 1) {
    clock.setSystemTime(Date.now() + 1000);
    state = await call(10, true);
  }
  return state;
}

const found = {};
const [one, nine, good, quiet] = [service(), service(), service(), service()];
clock.setSystemTime(new Date('2026-06-01T00:00Z'));
await nine(9, true);
await good(100, false);
clock.setSystemTime(new Date('2026-06-01T08:00Z'));
found['one failure'] = await one(1, true);
found['one failure, and nine 8 hours before'] = await nine(1, true);
found['90 failures in 9 s'] = await failing(quiet);
found['90 failures in 9 s, and 100 good calls 8 hours before'] = await failing(good);
console.log('the circuit after:', found);
assert.deepEqual(Object.values(found), ['Closed', 'Open', 'Open', 'Closed']);
JS
node try.mjs
