// The page: keeps what the service tells, and shows it.

import { act, listen } from './api.js';
import { confirmed } from './confirm.js';
import { detail } from './detail.js';
import { element, id, mayAct, say } from './elements.js';
import { valueFields } from './fields.js';
import { fleetOf, followFleet } from './fleet.js';
import { amount, ENFORCEMENT, numbers, overridden, period, rate, recent, time } from './format.js';
import { marksOf, showChanges } from './history.js';
import { COUNTS, SHOWN, forgetColors, ratePlot, spark } from './plots.js';
import { scopeForm } from './scope.js';

const at = (name) => document.getElementById(name);

/** The moments of the samples, in seconds, and the same for all limits together. No plot has those of broken policies. */
const times = [];
const LISTS = [...COUNTS, { name: 'invalid' }];
const totals = LISTS.map(() => []);
/** By name: what is said of a limit, its counts a second and of the last hour, and its row. */
const limits = new Map();
const NOTHING = { waiting: 0, held: 0, refused: [0, 0, 0], refused_by: [], at_limit: 0 };
let lately = null;
const latelyOf = (name) => ({ ...lately?.[name] ?? NOTHING, ...fleetOf(name) });
let view = null;
let heard = 0;
let process = null;

const none = () => ({ counts: LISTS.map(() => times.map(() => 0)) });

/** Takes in a sample, after which each list has one number more, but no more than are shown. */
function take(sample) {
  // A gap is drawn as one.
  const second = sample.at / 1000;
  const gap = times.length > 0 && second - times.at(-1) > 2.5;
  for (const now of gap ? [times.at(-1) + 1, second] : [second]) {
    const isGap = now !== second;
    times.push(now);
    totals.forEach((list) => list.push(isGap || limits.size > 0 ? null : 0));
    for (const [name, limit] of limits) {
      const seen = isGap ? undefined : sample.limits[name];
      // Nothing is counted while a limit is off: a zero would look like an outage.
      const isOff = !seen && limit.said.enforcement === 'off';
      limit.counts.forEach((list, count) => {
        const value = seen ? (seen[count] * 1000) / Math.max(sample.span, 1) : 0;
        list.push(isGap || isOff ? null : value);
        if (!isGap && !isOff) totals[count][totals[count].length - 1] += value;
      });
    }
    while (times.length > SHOWN) {
      times.shift();
      totals.forEach((list) => list.shift());
      for (const limit of limits.values()) {
        limit.counts.forEach((list) => list.shift());
      }
    }
  }
  heard = Date.now();
}

function forget() {
  times.length = 0;
  totals.forEach((list) => { list.length = 0; });
  for (const limit of limits.values()) Object.assign(limit, none());
}

const dialog = at('dialog');
const allScope = scopeForm();
at('dialog-scope').replaceWith(allScope.place);

const overview = ratePlot(at('overview'), at('totals'), 170);

// The list.

function row(name) {
  const place = id('detail');
  const [title, said, chip, admitted, refused, sum, window] =
    ['name', 'said', 'chip', 'number', 'number', 'number', 'unit'].map((kind) => element('span', { class: kind }));
  const canvas = element('canvas', { class: 'spark', 'aria-hidden': 'true' });
  title.textContent = name;
  const button = element('button', { type: 'button', class: 'row', 'aria-expanded': 'false', 'aria-controls': place },
    element('span', { class: 'what' }, title, said), element('span', { class: 'how' }, chip), canvas,
    element('span', { class: 'rate' }, admitted, element('span', { class: 'unit' }, ' admitted/s')),
    element('span', { class: 'rate' }, refused, element('span', { class: 'unit' }, ' refused/s')),
    element('span', { class: 'rate sum' }, sum, window));
  const more = element('div', { id: place, class: 'more', hidden: true });
  const item = element('li', { 'data-limit': name }, button, more);
  button.addEventListener('click', () => toggle(name));
  return { item, button, more, said, chip, canvas, admitted, refused, sum, window };
}

function toggle(name) {
  const limit = limits.get(name);
  const opens = !limit.detail;
  for (const other of limits.values()) {
    if (!other.detail) continue;
    other.detail.end();
    other.detail = null;
    other.row.more.replaceChildren();
    other.row.more.hidden = true;
    other.row.button.setAttribute('aria-expanded', 'false');
  }
  history.replaceState(null, '', location.pathname + location.search + (opens ? `#limit=${encodeURIComponent(name)}` : ''));
  if (!opens) return;
  limit.row.more.hidden = false;
  limit.row.button.setAttribute('aria-expanded', 'true');
  limit.detail = detail(limit.row.more, name);
  limit.detail.describe(limit.said, view, latelyOf(name));
  limit.detail.plot(times, limit);
}

/** Opens the limit that the address names. */
function follow() {
  const name = decodeURIComponent(/^#limit=(.+)$/.exec(location.hash)?.[1] ?? '');
  const limit = limits.get(name);
  if (!limit || limit.detail) return;
  toggle(name);
  limit.row.item.scrollIntoView({ block: 'start' });
}
addEventListener('hashchange', follow);

function describe(limit) {
  describeRow(limit);
  limit.detail?.describe(limit.said, view, latelyOf(limit.said.name));
}

function describeRow(limit) {
  const { row: parts, said } = limit;
  const words = [said.algorithm.replace('_', ' ')];
  if (said.now) words.push(numbers(said.now));
  else if (said.dynamic.length > 0) words.push(`by ${said.dynamic.join(', ')}`);
  if (said.overrides.length > 0) words.push('overridden');
  if (said.shares_one_bucket) words.push('callers share one bucket');
  const callers = latelyOf(said.name).at_limit;
  if (callers > 0) words.push(`${callers}${callers < 64 ? '' : ' or more'} ${callers === 1 ? 'caller' : 'callers'} at the limit`);
  say(parts.said, words.join(' · '));
  say(parts.chip, ENFORCEMENT[said.enforcement]);
  parts.chip.className = `chip ${said.enforcement}`;
}

const admissions = (limit) => fleetOf(limit.said.name)?.admittedRate ?? recent(limit.counts[0]);
const refusals = (limit) => fleetOf(limit.said.name)?.refusedRate ?? recent(limit.counts[1]) + recent(limit.counts[2]);

let isDue = false;

/** Shows the numbers in the next frame: once for all that has come till then, and not while nobody sees the page. */
function show() {
  if (isDue || view === null) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    draw();
  });
}

function draw() {
  overview.show(times, totals, marksOf(view), view.enforcement?.what.enforcement === 'off');
  storeChip();
  const { index, words } = WINDOWS[at('order').value] ?? WINDOWS.minutes;
  say(at('window'), words);
  for (const [name, limit] of limits) {
    const { row: parts } = limit;
    const isOff = limit.said.enforcement === 'off';
    say(parts.admitted, isOff ? 'not counted' : rate(admissions(limit)));
    say(parts.refused, isOff ? '–' : rate(refusals(limit)));
    say(parts.sum, amount(latelyOf(name).refused[index]));
    say(parts.window, ` refused in the ${words}`);
    parts.refused.classList.toggle('some', refusals(limit) > 0);
  }
  // After all texts: a plot asks for its width, before which the browser arranges what was written.
  for (const limit of limits.values()) {
    if (!limit.row.item.hidden) spark(limit.row.canvas, limit.counts);
    limit.detail?.plot(times, limit);
  }
}

/** The windows of time of refusals; the column has that of the order. */
const WINDOWS = {
  minute: { index: 0, words: 'last minute' },
  minutes: { index: 1, words: 'last 10 minutes' },
  hour: { index: 2, words: 'last hour' },
};
const lastly = (index) => (a, b) => latelyOf(b.said.name).refused[index] - latelyOf(a.said.name).refused[index];
const ORDERS = {
  name: () => 0,
  refused: (a, b) => refusals(b) - refusals(a),
  calls: (a, b) => admissions(b) + refusals(b) - admissions(a) - refusals(a),
  minute: lastly(0),
  minutes: lastly(1),
  hour: lastly(2),
};

function arrange() {
  const rows = at('rows');
  const sorted = [...limits.entries()].sort(([a], [b]) => (a < b ? -1 : 1))
    .sort(([, a], [, b]) => ORDERS[at('order').value](a, b));
  sorted.forEach(([, { row: { item } }], index) => {
    if (rows.children[index] !== item) rows.insertBefore(item, rows.children[index] ?? null);
  });
  filter();
}

function filter() {
  const wanted = at('find').value.trim().toLowerCase();
  let found = 0;
  for (const [name, { row: { item } }] of limits) {
    item.hidden = !name.toLowerCase().includes(wanted);
    if (!item.hidden) found += 1;
  }
  say(at('count'), wanted ? `${found} of ${limits.size} limits` : `${limits.size} limits`);
  at('empty').hidden = found > 0;
  say(at('empty'), limits.size === 0
    ? 'This program has no function with a limit, and no limit has been called yet.'
    : 'No limit has this in its name.');
}

at('find').addEventListener('input', filter);
at('order').addEventListener('change', () => {
  arrange();
  show();
});
// What someone is at stays where it is; a new limit is the last one then.
function rearrange() {
  for (const { row: { item } } of limits.values()) if (!item.parentNode) at('rows').append(item);
  if (isAtRows()) filter();
  else arrange();
}
const isAtRows = () => at('rows').contains(document.activeElement) || at('rows').matches(':hover');
setInterval(rearrange, 3000);

// What is said of the limits.

function chip(place, text, kind) {
  say(place, text);
  place.className = `chip ${kind}`;
  place.hidden = text === '';
}

/** The store is well only if it decides: a slow one answers, and the process decides without it. */
function storeChip() {
  if (view === null) return;
  const failing = view.servers.filter((server) => server.failure);
  const [lost, invalid, all] = [[4, 5], [6], [0, 1, 2, 3, 5]].map((counts) => counts.reduce((sum, count) => sum + recent(totals[count]), 0));
  const undecided = lost - invalid;
  const share = `Redis did not decide ${Math.ceil((undecided / Math.max(all, undecided)) * 100)} % of the calls of the last 5 seconds.`;
  const words = failing.map((it) => `${it.name}: ${it.failure}, since ${time(it.since)}, ${it.failures} commands failed. ${it.advice[0].toUpperCase()}${it.advice.slice(1)}.`);
  if (view.store === 'memory') chip(at('store'), 'in memory', '');
  else if (failing.length > 0) chip(at('store'), failing.map((it) => `${it.name} fails since ${time(it.since)}`).join('; '), 'bad');
  else if (undecided > 0) chip(at('store'), 'Redis does not decide all calls', 'bad');
  else chip(at('store'), view.servers.map((server) => server.name).join(', ') || 'Redis', 'good');
  if (undecided > 0 && view.store !== 'memory') words.push(share);
  say(at('store-notice'), words.join(' '));
  at('store-notice').hidden = words.length === 0;
}

function told(next) {
  if (process !== null && process !== next.process) {
    say(at('notice'), `Another process answers now: ${next.process}. Each has counts of its own.`);
    at('notice').hidden = false;
  }
  ({ process } = next);
  view = next;
  for (const said of next.limits) {
    const limit = limits.get(said.name);
    if (limit) limit.said = said;
    else limits.set(said.name, { said, row: row(said.name), detail: null, ...none() });
  }
  for (const name of limits.keys()) {
    if (next.limits.some((said) => said.name === name)) continue;
    limits.get(name).detail?.end();
    limits.get(name).row.item.remove();
    limits.delete(name);
  }
  rearrange();
  limits.forEach(describe);
  storeChip();
  const global = next.enforcement;
  // Also a factor, and what is to come.
  const isOther = ({ what }) => (Array.isArray(what) || what.scale !== undefined || what.on_store_error !== undefined || new Date(what.from ?? 0) > Date.now())
    && JSON.stringify(what) !== JSON.stringify(global?.what);
  const most = [...global && global.what.enforcement !== 'on' ? [global] : [], ...next.of_all.filter(isOther)];
  if (most.length > 0) chip(at('all'), most.map(({ what, by }) => `all limits: ${overridden(what)} (${what.by ?? by})`).join(' · '), 'bad');
  else chip(at('all'), '', '');
  const problems = next.problems.map((text) => element('li', {}, text));
  if (at('problems').textContent !== next.problems.join('')) at('problems').replaceChildren(...problems);
  at('problems').hidden = problems.length === 0;
  allScope.describe(next);
  fleet.describe(next);
  showChanges(next.changes);
  follow();
  say(at('process'), `${next.process}${next.version ? `, version ${next.version}` : ''}, counting since ${time(next.started)}. `
    + `The plots show the last ${period(SHOWN * 1000)}; numbers a second are means of five.`);
}

function count() {
  limits.forEach((limit, name) => {
    describeRow(limit);
    limit.detail?.count(latelyOf(name));
  });
  show();
}
const fleet = followFleet(limits, count);

listen({
  limits: told,
  counts(next) {
    const isFirst = lately === null;
    lately = next;
    if (isFirst) arrange();
    count();
  },
  history(samples) {
    forget();
    samples.forEach(take);
    heard = Date.now();
    show();
  },
  samples(samples) {
    samples.forEach(take);
    show();
  },
  lost: () => { heard = 0; },
});

setInterval(() => {
  const isLive = Date.now() - heard < 3500;
  chip(at('live'), isLive ? 'live' : 'Disconnected', isLive ? 'good' : 'bad');
}, 500);

// All limits at once.

at('kill').addEventListener('click', () => {
  const now = view?.enforcement?.what.enforcement ?? '';
  for (const choice of dialog.querySelectorAll('[name=enforcement]')) choice.checked = choice.value === now;
  say(at('dialog-answer'), '');
  dialog.showModal();
});
at('dialog-cancel').addEventListener('click', () => dialog.close());
async function ofAll(action, body) {
  try {
    const request = { ...body(), scope: allScope.scope() };
    const { done } = await act(action, request).catch(async (error) => {
      const [question, asks] = error.message.split('; confirm it');
      if (asks !== '') throw error;
      // The times are those of the whole override, also of what another operator has set.
      return await confirmed(request.scope, 'All limits:', `${question}.`) ? act(action, { ...request, ends_whole: true }) : {};
    });
    if (!done) return;
    dialog.close();
    say(at('all-answer'), `All limits: ${done}`);
  } catch (error) {
    say(at('dialog-answer'), error.message);
  }
}
at('dialog-confirm').addEventListener('click', () => {
  const chosen = dialog.querySelector('[name=enforcement]:checked')?.value ?? '';
  const before = view.of_all.find(({ scope }) => scope === allScope.scope())?.what;
  return ofAll('enforcement', () => ({ limit: '*', enforcement: chosen || null, ...allScope.times(chosen === 'off', before) }));
});
at('dialog-values').replaceWith(...valueFields((field, value) => ofAll('field', () => ({ limit: '*', field, value, ...allScope.times() }))));

// Colours.

if (!mayAct) document.querySelectorAll('[data-act]').forEach((it) => it.remove());

const THEMES = ['auto', 'light', 'dark'];
function paint(theme) {
  document.documentElement.dataset.theme = theme;
  forgetColors();
  say(at('theme'), `◐ ${theme}`);
  at('theme').setAttribute('aria-label', `Colours: ${theme}`);
  overview.redraw();
  limits.forEach((limit) => {
    limit.detail?.redraw();
    spark(limit.row.canvas, limit.counts);
  });
}
const kept = () => {
  try {
    return localStorage.getItem('ratelimit-theme');
  } catch {
    return null;
  }
};
at('theme').addEventListener('click', () => {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  try {
    localStorage.setItem('ratelimit-theme', next);
  } catch {
    // Not kept where the browser keeps nothing.
  }
  paint(next);
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => paint(document.documentElement.dataset.theme));
paint(THEMES.includes(kept()) ? kept() : 'auto');
