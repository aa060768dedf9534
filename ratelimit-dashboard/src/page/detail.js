// One limit, opened: its plots, what is said of it, and what can be done with it.

import { act } from './api.js';
import { callerForm } from './caller.js';
import { confirmed } from './confirm.js';
import { element, id, mayAct, say } from './elements.js';
import { ENFORCEMENT, numbers, overridden, period } from './format.js';
import { ratePlot } from './plots.js';
import { refusedCallers } from './refused.js';
import { scopeForm } from './scope.js';

const ENFORCEMENTS = [['on', 'Enforced'], ['dry_run', 'Dry run'], ['off', 'Off'], ['code', 'Follow the code']];

export function detail(place, name) {
  const legend = element('div', { class: 'tiles small' });
  const rates = element('div', { class: 'plot', role: 'img', 'aria-label': `Calls per second of ${name}, last five minutes` });
  const facts = element('dl', { class: 'facts' });
  const acting = mayAct ? actions(name) : null;
  place.append(
    element('div', { class: 'charts' },
      element('figure', {}, element('figcaption', {}, 'Calls per second'), legend, rates)),
    facts, acting?.place ?? '');
  const ratesPlot = ratePlot(rates, legend, 170);
  return {
    describe(said, view) {
      facts.replaceChildren(...told(said).flatMap(([term, text]) =>
        [element('dt', {}, term), element('dd', {}, text)]));
      acting?.describe(said, view);
    },
    plot(times, limit) {
      ratesPlot.show(times, limit.counts);
    },
    redraw() {
      ratesPlot.redraw();
    },
    end() {
      ratesPlot.end();
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
  facts.push(['enforcement', `${ENFORCEMENT[said.enforcement]} (${said.enforced_by})`]);
  for (const { by, what } of said.overrides) {
    facts.push([`override by ${by}`, overridden(what) + (what.by ? ` (${what.by})` : '')]);
  }
  if (said.cost !== '' && said.cost !== '1') facts.push(['cost of a call', said.cost]);
  if (said.key !== null) {
    facts.push(['key', said.key.length === 0 ? 'the ambient caller' : said.key.join(', ')]);
  }
  if (said.shares_one_bucket) {
    facts.push(['callers', 'calls came without a key and outside an identity layer, and share one bucket']);
  }
  if (said.is_weighted) facts.push(['entries of a caller', 'one for each call, with its units']);
  if (said.counts_rejected) facts.push(['refused calls', 'are counted as well']);
  facts.push(['refused', said.enforcement === 'off' ? 'not counted while the limit is off'
    : `${said.refused[0]} in the last minute, ${said.refused[1]} in 10 minutes, ${said.refused[2]} in the last hour`]);
  const all = said.refused_by.reduce((sum, [, calls]) => sum + calls, 0);
  if (all > 0) {
    facts.push(['refused by', said.refused_by.map(([reason, calls]) => `${reason} ${Math.round((calls / all) * 100)} %`).join(', ')]);
  }
  if (said.held > 0) facts.push(['in flight', `${said.held} calls of this process`]);
  if (said.waiting > 0) facts.push(['in line', `${said.waiting} calls of this process wait`]);
  facts.push(['declared', said.places.length === 0
    ? 'not by the attribute: a limit of a layer, or one that the program checks itself'
    : said.places.join(', ')]);
  if (said.is_in_conflict) facts.push(['conflict', 'functions of this name have different limits, and disturb each other']);
  return facts;
}

/** Does something by a button, and says what has come of it. */
function doing(name, scope, answer) {
  return async (what, body, words) => {
    answer.classList.remove('bad');
    try {
      const end = what === 'override' ? {} : scope.end();
      if (!await confirmed(scope.scope(), `${name}: ${words}.`)) return false;
      say(answer, (await act(what, { limit: name, ...body, ...end, scope: scope.scope() })).done);
      return true;
    } catch (error) {
      answer.classList.add('bad');
      say(answer, error.message);
      return false;
    }
  };
}

function actions(name) {
  const answer = element('p', { class: 'answer', 'aria-live': 'polite' });
  const scope = scopeForm();
  const run = doing(name, scope, answer);
  let isNew = true;
  // The form begins anew with what holds once the service has said so.
  let isStale = true;
  const buttons = ENFORCEMENTS.map(([word, label]) => element('button', {
    type: 'button', 'data-enforce': word, 'aria-pressed': 'false',
    onclick: () => run('enforcement', { enforcement: word === 'code' ? null : word }, label.toLowerCase()),
  }, label));
  const takeBack = element('button', {
    type: 'button', 'data-take-back': true,
    onclick: async () => { if (await run('override', {}, 'override removed')) isStale = true; },
  }, 'Remove override');
  const numbersForm = renumber(run, takeBack);
  const heading = id('heading');
  const place = element('div', { class: 'acts' }, scope.place,
    element('section', { class: 'card', 'aria-labelledby': heading },
      element('h3', { id: heading }, 'Override'),
      element('div', { class: 'segments', role: 'group', 'aria-label': 'Enforcement' }, ...buttons),
      numbersForm.place, answer),
  );
  const caller = callerForm(name, scope);
  const most = refusedCallers(name, caller.choose);
  place.append(most.place, caller.place);
  return {
    place,
    describe(said, view) {
      scope.describe(view);
      // Its own override, not that of all limits.
      const own = said.overrides.find(({ what }) => what.enforcement)?.what.enforcement ?? 'code';
      for (const button of buttons) button.setAttribute('aria-pressed', button.dataset.enforce === own);
      takeBack.disabled = !said.overrides.some(({ can_end }) => can_end);
      numbersForm.describe(said);
      if (isNew) caller.describe(said);
      caller.exceptions.describe(view);
      most.describe(said);
      if (isStale) numbersForm.fill();
      isNew = false;
      isStale = false;
    },
  };
}

/** The form for period, threshold, burst and calls in flight, or for several tiers. */
function renumber(run, takeBack) {
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
    run('numbers', { numbers: given }, overridden(given));
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
