#!/usr/bin/env bash
# Node's `Intl` has the zones that were compiled into Node, whatever the system or `TZDIR` has. moment-timezone has its
# own in the package. On one Node of this year they differ: 30 November in Vancouver is an hour longer for `Intl`, and
# so for luxon, date-fns-tz and day.js, which ask it. A page's "your quota is back at" and the server's day disagree.
. "$(dirname "$0")/setup"
with_node moment-timezone@0.6.6 luxon@3.7.2 node@20.19.0
cat >try.js <<'JS'
const assert = require('node:assert');
const { DateTime } = require('luxon');
const moment = require('moment-timezone');
const time = Date.UTC(2026, 11, 1, 7, 30);
const zone = 'America/Vancouver';
const intl = new Intl.DateTimeFormat('sv', { timeZone: zone, dateStyle: 'short', timeStyle: 'short' });
const found = {
  [`Intl of Node ${process.version}, zones ${process.versions.tz}`]: intl.format(time),
  luxon: DateTime.fromMillis(time, { zone }).toFormat('yyyy-MM-dd HH:mm'),
  [`moment-timezone, zones ${moment.tz.dataVersion}`]: moment.tz(time, zone).format('YYYY-MM-DD HH:mm'),
};
console.log(found);
assert.deepStrictEqual(Object.values(found), ['2026-11-30 23:30', '2026-11-30 23:30', '2026-12-01 00:30']);
JS
node_modules/.bin/node try.js
