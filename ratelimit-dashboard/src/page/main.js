// The page: keeps what the service tells, and shows it.

import { act, listen } from './api.js';
import { detail } from './detail.js';
import { element, id, mayAct, say } from './elements.js';
import { ENFORCEMENT, effect, numbers, period, rate, share } from './format.js';
import { COUNTS, SHOWN, ratePlot, spark } from './plots.js';
import { trial } from './trial.js';

const at = (name) => document.getElementById(name);

/** The moments of the samples, in seconds, and the same for all limits together. */
const times = [];
const totals = COUNTS.map(() => []);
/** By name: what is said of a limit, its counts a second, and its row. */
const limits = new Map();
let view = null;
let heard = 0;
let process = null;

const none = () => ({ counts: COUNTS.map(() => times.map(() => 0)), left: times.map(() => null) });

/** Takes in a sample, after which each list has one number more, but no more than are shown. */
function take(sample) {
  // A gap is drawn as one.
  const second = sample.at / 1000;
  const gap = times.length > 0 && second - times.at(-1) > 2.5;
  for (const now of gap ? [times.at(-1) + 1, second] : [second]) {
    const isGap = now !== second;
    times.push(now);
    totals.forEach((list) => list.push(isGap ? null : 0));
    for (const [name, limit] of limits) {
      const seen = isGap ? undefined : sample.limits[name];
      limit.counts.forEach((list, count) => {
        const value = seen ? (seen.counts[count] * 1000) / Math.max(sample.span, 1) : 0;
        list.push(isGap ? null : value);
        if (!isGap) totals[count][totals[count].length - 1] += value;
      });
      limit.left.push(seen?.left ?? null);
    }
    while (times.length > SHOWN) {
      times.shift();
      totals.forEach((list) => list.shift());
      for (const limit of limits.values()) {
        limit.counts.forEach((list) => list.shift());
        limit.left.shift();
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

const overview = ratePlot(at('overview'), at('totals'), 170);

// The list.

function row(name) {
  const place = id('detail');
  const [title, said, chip, admitted, refused, left, amount] =
    ['name', 'said', 'chip', 'number', 'number', 'meter', 'amount'].map((kind) => element('span', { class: kind }));
  const canvas = element('canvas', { class: 'spark', 'aria-hidden': 'true' });
  const bar = element('span', { class: 'fill' });
  left.append(bar);
  title.textContent = name;
  const button = element('button', { type: 'button', class: 'row', 'aria-expanded': 'false', 'aria-controls': place },
    element('span', { class: 'what' }, title, said), element('span', { class: 'how' }, chip), canvas,
    element('span', { class: 'rate' }, admitted, element('span', { class: 'unit' }, ' admitted/s')),
    element('span', { class: 'rate' }, refused, element('span', { class: 'unit' }, ' refused/s')),
    element('span', { class: 'least' }, left, amount));
  const more = element('div', { id: place, class: 'more', hidden: true });
  const item = element('li', { 'data-limit': name }, button, more);
  button.addEventListener('click', () => toggle(name));
  return { item, button, more, said, chip, canvas, admitted, refused, bar, amount };
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
  if (!opens) return;
  limit.row.more.hidden = false;
  limit.row.button.setAttribute('aria-expanded', 'true');
  limit.detail = detail(limit.row.more, name);
  limit.detail.describe(limit.said, view);
  limit.detail.plot(times, limit);
}

function describe(limit) {
  const { row: parts, said } = limit;
  const words = [said.algorithm.replace('_', ' ')];
  if (said.now) words.push(numbers(said.now));
  else if (said.dynamic.length > 0) words.push(`by ${said.dynamic.join(', ')}`);
  if (said.overrides.length > 0) words.push('overridden');
  if (said.shares_one_bucket) words.push('callers share one bucket');
  say(parts.said, words.join(' · '));
  say(parts.chip, ENFORCEMENT[said.enforcement]);
  parts.chip.className = `chip ${said.enforcement}`;
  limit.detail?.describe(said, view);
}

/** The mean of the last seconds, so that numbers can be read. */
const recent = (list) => {
  const last = list.slice(-5).filter((value) => value !== null);
  return last.length === 0 ? 0 : last.reduce((sum, value) => sum + value, 0) / last.length;
};
const lastLeft = (limit) => limit.left.slice(-15).reduce(
  (least, value) => (value === null ? least : Math.min(least ?? 1, value)), null);
const refusals = (limit) => recent(limit.counts[1]) + recent(limit.counts[2]);

function show() {
  overview.show(times, totals);
  for (const limit of limits.values()) {
    const { row: parts } = limit;
    say(parts.admitted, rate(recent(limit.counts[0])));
    say(parts.refused, rate(refusals(limit)));
    parts.refused.classList.toggle('some', refusals(limit) > 0);
    const left = lastLeft(limit);
    say(parts.amount, share(left));
    parts.bar.style.width = `${(left ?? 0) * 100}%`;
    parts.bar.classList.toggle('low', left !== null && left < 0.1);
    if (!parts.item.hidden) spark(parts.canvas, limit.counts);
    limit.detail?.plot(times, limit);
  }
}

const ORDERS = {
  name: () => 0,
  refused: (a, b) => refusals(b) - refusals(a),
  calls: (a, b) => recent(b.counts[0]) + refusals(b) - recent(a.counts[0]) - refusals(a),
  left: (a, b) => (lastLeft(a) ?? 2) - (lastLeft(b) ?? 2),
};

function arrange() {
  const sorted = [...limits.entries()].sort(([a], [b]) => (a < b ? -1 : 1))
    .sort(([, a], [, b]) => ORDERS[at('order').value](a, b));
  const wanted = at('find').value.trim().toLowerCase();
  let found = 0;
  sorted.forEach(([name, limit], index) => {
    const { item } = limit.row;
    if (at('rows').children[index] !== item) at('rows').insertBefore(item, at('rows').children[index] ?? null);
    item.hidden = !name.toLowerCase().includes(wanted);
    if (!item.hidden) found += 1;
  });
  say(at('count'), wanted ? `${found} of ${limits.size} limits` : `${limits.size} limits`);
  at('empty').hidden = found > 0;
  say(at('empty'), limits.size === 0
    ? 'This program has no function with a limit, and no limit has been called yet.'
    : 'No limit has this in its name.');
}

at('find').addEventListener('input', arrange);
at('order').addEventListener('change', arrange);
// What someone is at stays where it is.
setInterval(() => {
  const isUsed = at('rows').contains(document.activeElement) || at('rows').matches(':hover');
  if (!isUsed && at('order').value !== 'name') arrange();
}, 3000);

// What is said of the limits.

function chip(place, text, kind) {
  say(place, text);
  place.className = `chip ${kind}`;
  place.hidden = text === '';
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
  arrange();
  limits.forEach(describe);
  const failing = next.servers.filter((server) => server.failure);
  at('store').title = failing[0]?.advice ?? '';
  if (next.store === 'memory') chip(at('store'), 'in memory', '');
  else if (failing.length === 0) chip(at('store'), next.servers.map((server) => server.name).join(', ') || 'Redis', 'good');
  else chip(at('store'), failing.map((server) => `${server.name}: ${server.failure}`).join('; '), 'bad');
  const most = next.enforcement;
  if (most && most.what !== 'on') chip(at('all'), `all limits: ${ENFORCEMENT[most.what]}, says ${most.by}`, 'bad');
  else chip(at('all'), '', '');
  const problems = next.problems.map((text) => element('li', {}, text));
  if (at('problems').textContent !== next.problems.join('')) at('problems').replaceChildren(...problems);
  at('problems').hidden = problems.length === 0;
  say(at('process'), `${next.process}. ${effect(next)} `
    + `The plots show the last ${period(SHOWN * 1000)}; numbers in the list are means of five seconds, and the least share left of fifteen.`);
}

listen({
  limits: told,
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
  chip(at('live'), isLive ? 'live' : 'no news', isLive ? 'good' : 'bad');
}, 500);

// All limits at once.

const dialog = at('dialog');
at('kill').addEventListener('click', () => {
  const now = view?.enforcement?.what ?? '';
  for (const choice of dialog.querySelectorAll('input')) choice.checked = choice.value === (now === 'on' ? '' : now);
  say(at('dialog-target'), view ? effect(view) : '');
  say(at('dialog-answer'), '');
  dialog.showModal();
});
at('dialog-cancel').addEventListener('click', () => dialog.close());
at('dialog-confirm').addEventListener('click', async () => {
  const chosen = dialog.querySelector('input:checked')?.value ?? '';
  try {
    await act('all', { enforcement: chosen || null });
    dialog.close();
  } catch (error) {
    say(at('dialog-answer'), error.message);
  }
});

// Views and colours.

const tabs = [at('tab-limits'), at('tab-trial')].filter((tab) => mayAct || !('act' in tab.dataset));
let trying = null;
function select(tab) {
  for (const it of tabs) {
    const isIt = it === tab;
    it.setAttribute('aria-selected', isIt);
    it.tabIndex = isIt ? 0 : -1;
    at(it.getAttribute('aria-controls')).hidden = !isIt;
  }
  if (tab.id === 'tab-trial') trying ??= trial(at('trial'));
  trying?.run(tab.id === 'tab-trial');
}
tabs.forEach((tab, index) => {
  tab.addEventListener('click', () => select(tab));
  tab.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(index + step + tabs.length) % tabs.length];
    select(next);
    next.focus();
  });
});
if (!mayAct) document.querySelectorAll('[data-act]').forEach((it) => it.remove());

const THEMES = ['auto', 'light', 'dark'];
function paint(theme) {
  document.documentElement.dataset.theme = theme;
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
