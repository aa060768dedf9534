#!/usr/bin/env bash
# In Cairo, Beirut and Santiago summer time ends at midnight: the clock goes back from 24:00 to 23:00 of the same day.
# The package cron, which NestJS's `@Cron` runs on, starts the job of `0 0 * * *` at this second 23:00, an hour that
# the expression does not name, and once more at midnight. So who renews the quotas of a day by it gives them twice in
# an hour, first to the day that is about to end. `30 0 * * *` runs at 23:30 in the same way. croner and node-cron run
# once.
. "$(dirname "$0")/setup"
with_node cron@4.4.0 croner@11.0.1 node-cron@4.6.0 @sinonjs/fake-timers@15.5.0
echo "@nestjs/schedule@12.0.2 runs on cron@$(npm view @nestjs/schedule@12.0.2 dependencies.cron)"
cat >try.mjs <<'JS'
import assert from 'node:assert';
import timers from '@sinonjs/fake-timers';

console.log('zones of Node:', process.versions.tz);
const clock = timers.install({ toFake: ['Date', 'setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'] });
const { CronJob } = await import('cron');
const { Cron } = await import('croner');
const nodeCron = await import('node-cron');

// When do they run in the next 44 hours, by the clocks of the zone?
async function runs(start, zone, expression) {
  clock.setSystemTime(new Date(start));
  const local = new Intl.DateTimeFormat('sv', { timeZone: zone, dateStyle: 'short', timeStyle: 'short' });
  const found = { cron: [], croner: [], 'node-cron': [] };
  const note = (name) => () => found[name].push(local.format(new Date()));
  const jobs = [
    new CronJob(expression, note('cron'), null, true, zone),
    new Cron(expression, { timezone: zone }, note('croner')),
    nodeCron.schedule(expression, note('node-cron'), { timezone: zone }),
  ];
  for (let minute = 0; minute < 44 * 60; minute += 1) await clock.tickAsync(60_000);
  jobs.forEach((job) => job.stop());
  console.log(zone, expression, found);
  return found;
}

for (const [start, zone, before, day] of [
  ['2026-10-28T12:00Z', 'Africa/Cairo', '2026-10-29', '2026-10-30'],
  ['2026-10-23T12:00Z', 'Asia/Beirut', '2026-10-24', '2026-10-25'],
  ['2026-04-03T12:00Z', 'America/Santiago', '2026-04-04', '2026-04-05'],
]) {
  for (const minutes of ['00', '30']) {
    const found = await runs(start, zone, `${Number(minutes)} 0 * * *`);
    const once = [`${before} 00:${minutes}`, `${day} 00:${minutes}`];
    assert.deepEqual(found, { cron: [once[0], `${before} 23:${minutes}`, once[1]], croner: once, 'node-cron': once });
  }
}
process.exit(0);
JS
node try.mjs
