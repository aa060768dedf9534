// One limit, opened: its plots, what is said of it, and what can be done with it.

import { act } from './api.js';
import { callerForm } from './caller.js';
import { element, id, mayAct, say } from './elements.js';
import { ENFORCEMENT, effect, inFlight, numbers, period } from './format.js';
import { ratePlot, sharePlot } from './plots.js';

const ENFORCEMENTS = [['on', 'On'], ['dry_run', 'Dry run'], ['off', 'Off']];

export function detail(place, name) {
  const legend = element('div', { class: 'tiles small' });
  const rates = element('div', { class: 'plot', role: 'img', 'aria-label': `Calls per second of ${name}, last five minutes` });
  const left = element('div', { class: 'plot', role: 'img', 'aria-label': `Least share left to a caller of ${name}, last five minutes` });
  const facts = element('dl', { class: 'facts' });
  const acting = mayAct ? actions(name) : null;
  place.append(
    element('div', { class: 'charts' },
      element('figure', {}, element('figcaption', {}, 'Calls per second'), legend, rates),
      element('figure', {}, element('figcaption', {}, 'Least share of the limit that was left to any caller'), left)),
    facts, acting?.place ?? '');
  const ratesPlot = ratePlot(rates, legend, 170);
  const leftPlot = sharePlot(left, 90);
  return {
    describe(said, view) {
      facts.replaceChildren(...told(said).flatMap(([term, text]) =>
        [element('dt', {}, term), element('dd', {}, text)]));
      acting?.describe(said, view);
    },
    plot(times, limit) {
      ratesPlot.show(times, limit.counts);
      leftPlot.show(times, limit.left);
    },
    redraw() {
      ratesPlot.redraw();
      leftPlot.redraw();
    },
    end() {
      ratesPlot.end();
      leftPlot.end();
    },
  };
}

/** What there is to know, as terms and texts. */
function told(said) {
  const facts = [['algorithm', said.algorithm]];
  const written = said.written ? numbers(said.written)
    : said.dynamic.length > 0 ? `by ${said.dynamic.join(', ')}, for each call` : 'not known yet';
  facts.push(['as written', written]);
  if (said.now && !said.written) facts.push(['latest call', numbers(said.now)]);
  else if (said.now && numbers(said.now) !== written) facts.push(['holds now', numbers(said.now)]);
  if (said.fault) facts.push(['the override does not fit', said.fault]);
  facts.push(['enforcement', `${ENFORCEMENT[said.enforcement]}, says ${said.enforced_by}`]);
  for (const { by, what } of said.overrides) facts.push([`override by ${by}`, overridden(what)]);
  if (said.cost !== '' && said.cost !== '1') facts.push(['cost of a call', said.cost]);
  if (said.key !== null) {
    facts.push(['key', said.key.length === 0 ? 'the ambient caller' : said.key.join(', ')]);
  }
  if (said.shares_one_bucket) {
    facts.push(['callers', 'calls came without a key and outside an identity layer, and share one bucket']);
  }
  if (said.is_weighted) facts.push(['entries of a caller', 'one for each call, with its units']);
  if (said.counts_rejected) facts.push(['refused calls', 'are counted as well']);
  if (said.waiting > 0) facts.push(['in line', `${said.waiting} calls of this process wait`]);
  facts.push(['declared', said.places.length === 0
    ? 'not by the attribute: a limit of a layer, or one that the program checks itself'
    : said.places.join(', ')]);
  if (said.is_in_conflict) facts.push(['conflict', 'functions of this name have different limits, and disturb each other']);
  return facts;
}

function overridden(what) {
  const words = [];
  if (what.enforcement) words.push(ENFORCEMENT[what.enforcement]);
  for (const tier of what.tiers ?? []) words.push(`${tier.threshold} per ${length(tier.period)}`);
  if (what.threshold !== undefined) words.push(`threshold ${what.threshold}`);
  if (what.period !== undefined) words.push(`period ${length(what.period)}`);
  if (what.burst !== undefined) words.push(`burst ${what.burst}`);
  if (what.concurrency !== undefined) words.push(inFlight(what.concurrency));
  return words.join(', ');
}

/** Documents have whole seconds as numbers. */
const length = (written) => (typeof written === 'number' ? period(written * 1000) : written);

/** Does something by a button, and says what has come of it. */
function doing(answer) {
  return async (what, body) => {
    answer.classList.remove('bad');
    try {
      say(answer, (await act(what, body)).done);
      return true;
    } catch (error) {
      answer.classList.add('bad');
      say(answer, error.message);
      return false;
    }
  };
}

function actions(name) {
  const target = element('p', { class: 'hint' });
  const answer = element('p', { class: 'answer', 'aria-live': 'polite' });
  const run = doing(answer);
  let isNew = true;
  // The form begins anew with what holds once the service has said so.
  let isStale = true;
  const buttons = ENFORCEMENTS.map(([word, label]) => element('button', {
    type: 'button', 'data-enforce': word, 'aria-pressed': 'false',
    onclick: () => run('enforcement', { limit: name, enforcement: word }),
  }, label));
  const asWritten = element('button', {
    type: 'button', 'data-enforce': 'written',
    onclick: () => run('enforcement', { limit: name, enforcement: null }),
  }, 'As written');
  const takeBack = element('button', {
    type: 'button', 'data-take-back': true,
    onclick: async () => { if (await run('override', { limit: name })) isStale = true; },
  }, 'Take the override back');
  const numbersForm = renumber(name, run, takeBack);
  const heading = id('heading');
  const place = element('div', { class: 'acts' },
    element('section', { class: 'card', 'aria-labelledby': heading },
      element('h3', { id: heading }, 'Override'), target,
      element('div', { class: 'segments', role: 'group', 'aria-label': 'Enforcement' }, ...buttons, asWritten),
      numbersForm.place, answer),
  );
  const caller = callerForm(name);
  place.append(caller.place);
  return {
    place,
    describe(said, view) {
      say(target, effect(view));
      for (const button of buttons) {
        button.setAttribute('aria-pressed', button.dataset.enforce === said.enforcement);
      }
      takeBack.disabled = !said.overrides.some(({ by }) => by === view.target || by === 'the program');
      numbersForm.describe(said);
      if (isNew) caller.describe(said);
      if (isStale) numbersForm.fill();
      isNew = false;
      isStale = false;
    },
  };
}

/** The form for period, threshold, burst and calls in flight, or for several tiers. */
function renumber(name, run, takeBack) {
  let said = null;
  const rows = element('div', { class: 'tiers' });
  const optional = (label, kind) => {
    const input = element('input', { id: id(kind), name: kind, inputmode: 'numeric', size: 6, autocomplete: 'off' });
    return [input, element('div', { class: 'field' }, element('label', { for: input.id }, label), input)];
  };
  const [burst, burstField] = optional('Burst', 'burst');
  const [concurrency, concurrencyField] = optional('In flight', 'concurrency');
  const field = (label, kind, value, mode) => {
    const input = element('input', { id: id(kind), name: kind, value, inputmode: mode, size: 8, autocomplete: 'off', spellcheck: 'false' });
    return element('div', { class: 'field' }, element('label', { for: input.id }, label), input);
  };
  const tier = (threshold, length) => {
    const made = element('div', { class: 'tier', role: 'group', 'aria-label': 'Tier' },
      field('Threshold', 'threshold', threshold, 'numeric'), field('per', 'period', length, 'text'));
    made.append(element('button', {
      type: 'button', class: 'quiet', 'aria-label': 'Remove this tier',
      onclick: () => {
        if (rows.children.length > 1) made.remove();
      },
    }, '−'));
    return made;
  };
  const add = element('button', { type: 'button', class: 'quiet', onclick: () => rows.append(tier('', '')) }, 'Add a tier');
  const place = element('form', { class: 'numbers', novalidate: true },
    element('div', { class: 'tier' }, rows, burstField, concurrencyField),
    element('div', { class: 'buttons' },
      element('button', { type: 'submit', class: 'primary' }, 'Apply numbers'), add, takeBack));
  // Numbers are sent as numbers; what is none is for the service to refuse in its words.
  const number = (text) => (/^\d+$/.test(text.trim()) ? Number(text) : text.trim());
  place.addEventListener('submit', (event) => {
    event.preventDefault();
    const tiers = [...rows.children].map((it) => ({
      period: number(it.querySelector('[name=period]').value),
      threshold: number(it.querySelector('[name=threshold]').value),
    }));
    const wasOne = (said.written ?? said.now)?.tiers.length === 1 || said.dynamic.length > 0;
    const windows = tiers.length > 0 ? { tiers } : {};
    const given = tiers.length === 1 && wasOne ? { ...tiers[0] } : windows;
    if (!burstField.hidden && burst.value.trim() !== '') given.burst = number(burst.value);
    if (!concurrencyField.hidden) given.concurrency = number(concurrency.value);
    run('numbers', { limit: name, numbers: given });
  });
  return {
    place,
    describe(next) { said = next; },
    /** Starts from what holds now. */
    fill() {
      const held = said.now ?? said.written ?? { tiers: [{ threshold: '', period: null }], burst: null, concurrency: null };
      rows.replaceChildren(...held.tiers.map((it) =>
        tier(String(it.threshold), it.period === null ? '' : period(it.period))));
      burstField.hidden = said.algorithm !== 'token_bucket' || held.tiers.length > 1;
      burst.value = held.burst ?? '';
      concurrencyField.hidden = held.concurrency === null;
      concurrency.value = held.concurrency ?? '';
    },
  };
}
