// The algorithms side by side: calls on a time axis, and the window that slides over them.

import { act } from './api.js';
import { element, id, say } from './elements.js';
import { wait } from './format.js';

const ALGORITHMS = [
  ['sliding_window', 'Sliding window', 'An exact log. A call is free as soon as an admitted one leaves the window on the left.'],
  ['sliding_counter', 'Sliding counter', 'Two counters. The earlier window counts by the share of it that is still covered.'],
  ['fixed_window', 'Fixed window', 'Opens at a first call and ends a period later; then all is back at once.'],
  ['token_bucket', 'Token bucket', 'Tokens come back at an even rate; a call takes one.'],
];

/** How much of the axis is behind now, and how much before it, in periods. */
const BEHIND = 1.5;
const AHEAD = 0.5;
const HIGH = 88;
const GRAIN = 8;
const ROWS = 8;
const MOST_ENTRIES = 400;

const svg = (tag, attributes) => {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
};

export function trial(place) {
  let name = begin();
  let period = 10000;
  let runs = false;
  let asks = false;
  const still = matchMedia('(prefers-reduced-motion: reduce)');

  const input = (label, value, min, max) => {
    const made = element('input', { id: id('trial'), type: 'number', value, min, max, step: 1, required: true });
    return { made, field: element('div', { class: 'field' }, element('label', { for: made.id }, label), made) };
  };
  const threshold = input('Threshold', 5, 1, 50);
  const seconds = input('Period, seconds', 10, 1, 60);
  const size = input('Calls in a burst', 8, 1, 100);
  const burst = element('button', { type: 'button', class: 'primary', id: 'burst' }, 'Burst of 8');
  const one = element('button', { type: 'button', id: 'one' }, 'One call');
  const anew = element('button', { type: 'button', class: 'quiet', id: 'anew' }, 'Start anew');
  const told = element('p', { class: 'answer', role: 'status' });
  const lanes = ALGORITHMS.map(lane);
  place.append(
    element('div', { class: 'panel' },
      element('h2', {}, 'What each algorithm admits'),
      element('p', { class: 'hint' }, 'The same calls for all four, decided by this service’s own code on counts apart from its limits.'),
      element('form', { class: 'controls', onsubmit: (event) => event.preventDefault() },
        threshold.field, seconds.field, size.field, element('div', { class: 'buttons' }, one, burst, anew)),
      told,
      element('p', { class: 'key', 'aria-hidden': 'true' },
        mark('admitted'), 'admitted', mark('admitted gone'), 'admitted, out of the window', mark('refused'), 'refused')),
    ...lanes.map((it) => it.place));

  size.made.addEventListener('input', () => say(burst, `Burst of ${size.made.value}`));
  one.addEventListener('click', () => call(1));
  burst.addEventListener('click', () => call(Number(size.made.value)));
  anew.addEventListener('click', () => {
    name = begin();
    lanes.forEach((it) => it.clear());
    say(told, 'Started anew.');
    call(0);
  });
  for (const field of [threshold, seconds]) field.made.addEventListener('change', () => call(0));

  async function call(calls) {
    asks = true;
    try {
      const asked = { name, period: Math.round(Number(seconds.made.value) * 1000), threshold: Number(threshold.made.value), calls };
      const sent = performance.now();
      const answers = await act('trial', asked);
      const now = (sent + performance.now()) / 2;
      period = asked.period;
      for (const it of lanes) it.take(answers[it.name], now, asked);
      told.classList.remove('bad');
      if (calls > 0) {
        say(told, lanes.map((it) => `${it.title}: ${it.latest()}`).join('. ') + '.');
      }
    } catch (error) {
      told.classList.add('bad');
      say(told, error.message);
    } finally {
      asks = false;
    }
    draw();
  }

  function draw() {
    const now = performance.now();
    for (const it of lanes) it.draw(now, period);
  }

  // What is left is asked for while it changes, so that it is the service's word; each second where
  // nothing is to move.
  let turn = 0;
  setInterval(() => {
    const now = performance.now();
    turn += 1;
    if (still.matches && turn % 4 !== 0) return;
    if (runs && !asks && lanes.some((it) => it.isFilling(now))) call(0);
  }, 250);
  (function move() {
    if (runs) draw();
    if (still.matches) setTimeout(move, 1000);
    else requestAnimationFrame(move);
  })();

  return {
    run(now) {
      runs = now;
      if (now) call(0);
    },
  };
}

/** A name for these counts that no other page has. */
const begin = () =>
  [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, '0')).join('');

function mark(kind) {
  const place = svg('svg', { width: 12, height: 12, class: 'mark' });
  place.append(shape(kind.split(' ')[0], 6, 6));
  place.firstChild.classList.add(...kind.split(' '));
  return place;
}

/** A dot, or a cross: told apart without colours too. */
function shape(kind, x, y) {
  if (kind === 'admitted') return svg('circle', { cx: x, cy: y, r: 3, class: 'entry admitted' });
  return svg('path', { d: `M${x - 2.5} ${y - 2.5}l5 5m0 -5l-5 5`, class: 'entry refused' });
}

function lane([name, title, rule]) {
  const chart = svg('svg', { class: 'axis', role: 'img', height: HIGH });
  const band = svg('rect', { class: 'band', y: 0, height: HIGH - 16 });
  const edge = svg('line', { class: 'edge', y1: 0, y2: HIGH - 16 });
  const nowLine = svg('line', { class: 'now', y1: 0, y2: HIGH - 16 });
  const floor = svg('line', { class: 'floor', x1: 0, y1: HIGH - 16, y2: HIGH - 16 });
  const labels = ['−1 period', 'now', 'next'].map((text) => {
    const label = svg('text', { y: HIGH - 4, class: 'tick' });
    label.textContent = text;
    return label;
  });
  const next = svg('line', { class: 'next', y1: 4, y2: HIGH - 16 });
  const dots = svg('g', {});
  chart.append(band, floor, edge, nowLine, next, dots, ...labels);
  const summary = element('span', { class: 'summary' });
  const free = element('strong', { class: 'free' });
  const left = element('span', { class: 'left' });
  const meter = element('span', { class: 'meter', 'aria-hidden': 'true' }, element('span', { class: 'fill' }));
  const place = element('section', { class: 'panel lane', 'data-algorithm': name, 'aria-label': title },
    element('div', { class: 'lanehead' },
      element('div', {}, element('h3', {}, title), element('p', { class: 'hint' }, rule)),
      element('div', { class: 'state' }, free,
        element('div', { class: 'leftline' }, summary, meter, left))),
    chart);

  let entries = [];
  let answered = null;
  let opened = null;
  let total = [0, 0];
  let last = [0, 0];

  return {
    name,
    title,
    place,
    latest: () => `${last[0]} of ${last[0] + last[1]} admitted`,
    isFilling: (now) => answered !== null && answered.at + answered.reset + 600 > now,
    clear() {
      entries.forEach((entry) => entry.shape.remove());
      entries = [];
      total = [0, 0];
      opened = null;
    },
    take(answer, at, { period, threshold }) {
      answered = { ...answer, at, threshold };
      const count = answer.admitted.length;
      if (count > 0) last = [0, 0];
      answer.admitted.forEach((isAdmitted, index) => {
        last[isAdmitted ? 0 : 1] += 1;
        total[isAdmitted ? 0 : 1] += 1;
        if (isAdmitted && (opened === null || opened + period <= at)) opened = at;
        const y = HIGH - 22 - (index % ROWS) * GRAIN;
        const made = shape(isAdmitted ? 'admitted' : 'refused', 0, y);
        dots.append(made);
        entries.push({ at, isAdmitted, shape: made, shift: -Math.floor(index / ROWS) * GRAIN });
      });
      while (entries.length > MOST_ENTRIES) entries.shift().shape.remove();
    },
    draw(now, period) {
      const width = chart.clientWidth || 600;
      const x = (at) => width * ((at - now) / period + BEHIND) / (BEHIND + AHEAD);
      const put = (line, where) => {
        line.setAttribute('x1', where);
        line.setAttribute('x2', where);
      };
      floor.setAttribute('x2', width);
      put(nowLine, x(now));
      entries = entries.filter((entry) => {
        const where = x(entry.at) + entry.shift;
        if (where < -10) entry.shape.remove();
        else entry.shape.setAttribute('transform', `translate(${where.toFixed(1)})`);
        return where >= -10;
      });
      // The part of the axis whose admitted calls count now.
      let span = null;
      if (name === 'fixed_window') span = opened !== null && opened + period > now ? [opened, opened + period] : null;
      else if (name !== 'token_bucket') span = [now - period, now];
      band.setAttribute('x', span ? x(span[0]) : 0);
      band.setAttribute('width', span ? x(span[1]) - x(span[0]) : 0);
      put(edge, span ? x(span[0]) : -10);
      for (const entry of entries) {
        const isGone = name === 'token_bucket' ? false : !span || entry.at <= span[0] - 1;
        entry.shape.classList.toggle('gone', isGone);
      }
      const wanted = answered ? answered.at + answered.next : 0;
      const isFree = !answered || answered.next === 0;
      put(next, isFree ? -10 : x(wanted));
      labels[0].setAttribute('x', x(now - period));
      labels[1].setAttribute('x', x(now));
      say(labels[2], x(wanted) > width - 14 ? 'next →' : 'next');
      labels[2].setAttribute('x', isFree || x(wanted) - x(now) < 30 ? -99 : Math.min(x(wanted), width - 20));
      if (!answered) return;
      say(free, isFree ? 'free now' : `free in ${wait(Math.max(wanted - now, 100))}`);
      free.classList.toggle('closed', !isFree);
      say(left, `${answered.remaining} of ${answered.threshold} left`);
      meter.firstChild.style.width = `${Math.min(100, (answered.remaining / answered.threshold) * 100)}%`;
      say(summary, `${total[0]} admitted, ${total[1]} refused`);
      chart.setAttribute('aria-label', `${title}: ${total[0]} admitted, ${total[1]} refused; ${answered.remaining} left`);
    },
  };
}
