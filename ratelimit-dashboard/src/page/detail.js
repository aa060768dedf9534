// One limit, opened: its plots, what is said of it, and what can be done with it.

import { act } from './api.js';
import { callerForm } from './caller.js';
import { candidateCard } from './candidate.js';
import { confirmed } from './confirm.js';
import { element, id, mayAct, say, showAll } from './elements.js';
import { valueFields } from './fields.js';
import { isFleet } from './fleet.js';
import { ENFORCEMENT, length, numbers, overridden, period, time } from './format.js';
import { marksOf } from './history.js';
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
  let marks = [];
  let said = null;
  return {
    describe(next, view, counts) {
      said = next;
      marks = marksOf(view, (change) => [name, said.limit, '*'].includes(change.limit));
      this.count(counts);
      acting?.describe(said, view);
    },
    count(counts) {
      const all = told(said, counts).flatMap(([term, text]) => [['dt', term, term], ['dd', term, text]]);
      showAll(facts, all, ([tag, term]) => `${tag} ${term}`, ([tag]) => element(tag));
      all.forEach(([, , text], index) => say(facts.children[index], text));
      acting?.count(counts);
    },
    plot(times, limit) {
      ratesPlot.show(times, limit.counts, marks, said.enforcement === 'off');
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
function told(said, counts) {
  const facts = [['algorithm', said.algorithm]];
  if (said.limit !== said.name) facts.push(['plan of', said.limit]);
  const written = said.written ? numbers(said.written)
    : said.dynamic.length > 0 ? `by ${said.dynamic.join(', ')}, for each call` : 'not known yet';
  facts.push(['as written', written]);
  if (said.now && numbers(said.now) !== written) facts.push(['holds now', numbers(said.now)]);
  if (said.fault) facts.push(['the override does not fit', said.fault]);
  facts.push(['enforcement', `${ENFORCEMENT[said.enforcement]} (${said.enforced_by})`]);
  for (const { by, what, limit } of said.overrides) {
    facts.push([`override ${limit === said.name ? '' : `of ${limit} `}by ${by}`, overridden(what) + (what.by ? ` (${what.by})` : '')]);
  }
  if (said.cost !== '' && said.cost !== '1') facts.push(['cost of a call', said.cost]);
  if (said.key !== null) {
    facts.push(['key', said.key.length === 0 ? 'the ambient caller' : said.key.join(', ')]);
  }
  if (said.shares_one_bucket) {
    facts.push(['callers', 'calls came without a key and outside an identity layer, and share one bucket']);
  }
  if (said.counts_rejected) facts.push(['refused calls', 'are counted as well']);
  if (counts.at_limit > 0) facts.push(['callers at the limit', `${counts.at_limit}${counts.at_limit < 64 ? '' : ' or more'} in the last minute`]);
  facts.push([isFleet() ? 'refused by the fleet' : 'refused', said.enforcement === 'off' ? 'not counted while the limit is off'
    : `${counts.refused[0]} in the last minute, ${counts.refused[1]} in 10 minutes, ${counts.refused[2]} in the last hour`]);
  const all = counts.refused_by.reduce((sum, [, calls]) => sum + calls, 0);
  if (all > 0) {
    facts.push(['refused by', counts.refused_by.map(([reason, calls]) => `${reason} ${Math.round((calls / all) * 100)} %`).join(', ')]);
  }
  if (counts.local_share) facts.push(['decided without Redis', `under ${counts.local_share} % of the limit, by this process`]);
  if (counts.held > 0) facts.push(['in flight', `${counts.held} calls of this process`]);
  if (counts.waiting > 0) facts.push(['in line', `${counts.waiting} calls of this process wait`]);
  facts.push(['declared', said.places.length === 0
    ? 'not by the attribute: a limit of a layer, or one that the program checks itself'
    : said.places.join(', ')]);
  if (said.is_in_conflict) facts.push(['conflict', 'functions of this name have different limits, and disturb each other']);
  return facts;
}

/** The shares of the callers by which a limit is turned on step by step. */
const SHARES = ['1%', '5%', '10%', '25%', '100%'];

/** The fields that each action sets or removes. */
const OWN = { enforcement: ['enforcement', 'enforce'], numbers: ['period', 'threshold', 'tiers', 'burst', 'concurrency'], candidate: ['candidate'] };

/** Does something by a button, and says what has come of it. */
function doing(scope, answer, overrides) {
  return async (what, body, words) => {
    answer.classList.remove('bad');
    try {
      const [limit, chosen] = [body.limit ?? scope.limit(), body.scope ?? scope.scope()];
      const hasTimes = !['override', 'apply-candidate'].includes(what) && body.numbers !== null;
      const before = overrides().find((it) => it.limit === limit && it.scope === chosen)?.what;
      const times = hasTimes ? scope.times(body.enforcement === 'off', before) : {};
      // The times are those of the whole override, also of what another operator has set.
      const others = Object.entries(before ?? {}).filter(([field]) => !['from', 'until', 'by', ...OWN[what] ?? [body.field]].includes(field));
      const moment = (at) => new Date(at === 'never' ? 0 : at ?? 0).getTime();
      const changed = Object.keys(times).filter((it) => moment(before?.[it]) !== moment(times[it]));
      const both = others.length > 0 && changed.length > 0;
      const subject = changed.includes('from') ? 'Its times are then also those' : 'Its end is then also that';
      const ends = both ? `${subject} of: ${overridden(Object.fromEntries(others))} (${before.by ?? 'unknown'}).` : '';
      const more = `${ends} ${body.scope ? '' : scope.instead()}`.trim();
      const end = ['from', 'until'].map((it) => (times[it] && times[it] !== 'never' ? `, ${it} ${time(times[it])}` : '')).join('');
      if (!await confirmed(chosen, `${limit}: ${words}${end}.`, more)) return false;
      const request = { limit, ...body, ...times, ...both && { ends_whole: true }, scope: chosen };
      say(answer, (await act(what, request)).done);
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
  const scope = scopeForm(name);
  let said = null;
  const overrides = () => said.overrides;
  const run = doing(scope, answer, overrides);
  let isNew = true;
  // The form begins anew with what is in effect, once the service has sent it.
  let staleUntil = 0;
  const finish = async (done) => {
    if (!await done) return;
    staleUntil = Date.now() + 3000;
    numbersForm.expectChange(staleUntil);
  };
  const buttons = ENFORCEMENTS.map(([word, label]) => element('button', {
    type: 'button', 'data-enforce': word, 'aria-pressed': 'false',
    onclick: () => run('enforcement', { enforcement: word === 'code' ? null : word }, label.toLowerCase()),
  }, label));
  const shares = SHARES.map((share) => element('button', {
    type: 'button', 'data-share': share, 'aria-pressed': 'false',
    onclick: () => run('enforcement', { enforcement: null, enforce: share }, `enforced for ${share} of the callers`),
  }, share.replace('%', ' %')));
  const steps = element('p', { class: 'hint', 'data-steps': true });
  const values = valueFields((field, value) => run('field', { field, value }, value === null ? `no ${field}` : overridden({ [field]: value })));
  const takeBack = element('button', {
    type: 'button', 'data-take-back': true, onclick: () => finish(run('override', {}, 'override removed')),
  }, 'Remove override');
  const tell = (text, isBad) => {
    answer.classList.toggle('bad', isBad);
    say(answer, text);
  };
  const apply = (given, isTried) => {
    const words = overridden(given) || 'numbers as in the code';
    finish(isTried ? run('candidate', { numbers: given }, `try ${words}`) : run('numbers', { numbers: given }, words));
  };
  const numbersForm = renumber(apply, tell, takeBack);
  // A field that the operator goes to or writes in since is kept.
  for (const event of ['focusin', 'input']) {
    numbersForm.place.addEventListener(event, ({ target }) => { if (target.matches('input')) staleUntil = 0; });
  }
  const candidate = candidateCard((...action) => finish(run(...action)));
  const press = () => {
    // Its own override, not that of all limits.
    const own = said.overrides.filter(({ limit }) => limit === scope.limit());
    const enforcement = own.find(({ what }) => what.enforcement)?.what.enforcement ?? 'code';
    const share = own.find(({ what }) => what.enforce)?.what.enforce;
    for (const button of buttons) button.setAttribute('aria-pressed', !share && button.dataset.enforce === enforcement);
    for (const button of shares) button.setAttribute('aria-pressed', button.dataset.share === share);
    takeBack.disabled = !own.some((it) => it.scope !== null);
  };
  scope.place.addEventListener('change', press);
  const heading = id('heading');
  const place = element('div', { class: 'acts' }, scope.place,
    element('section', { class: 'card', 'aria-labelledby': heading },
      element('h3', { id: heading }, 'Override'),
      element('div', { class: 'segments', role: 'group', 'aria-label': 'Enforcement' }, ...buttons),
      element('div', { class: 'segments', role: 'group', 'aria-label': 'Enforced for a share of the callers, and a dry run for the others' }, ...shares), steps,
      numbersForm.place, ...values, answer), candidate.place,
  );
  const caller = callerForm(name, scope);
  const most = refusedCallers(name, caller.choose);
  place.append(most.place, caller.place);
  return {
    place,
    describe(next, view) {
      said = next;
      scope.describe(view, said.limit);
      press();
      numbersForm.describe(said);
      candidate.describe(said);
      if (isNew) caller.describe(said);
      caller.exceptions.describe(view);
      if (isNew || Date.now() < staleUntil) numbersForm.fill();
      isNew = false;
    },
    count(counts) {
      most.count(counts);
      candidate.count(counts);
      const wouldRefuse = SHARES.map((share, step) => `${counts.steps?.[step]} at ${share.replace('%', ' %')}`);
      say(steps, counts.steps?.at(-1) > 0 ? `Of the calls that a dry run of this process has let pass since its start, it would have refused ${wouldRefuse.join(', ')}.` : '');
    },
  };
}

/** The form for period, threshold, burst and calls in flight, or for several tiers. `apply` receives the numbers that
 * differ from the code's, and `true` if they are only tried; `tell` what there is to say, and `true` if it is bad. */
function renumber(apply, tell, takeBack) {
  let said = null;
  // What the form had, and what held, when it was filled.
  let [filled, basis] = ['', ''];
  // The time until which the operator's own change may come.
  let ownUntil = 0;
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
  const tryIt = element('button', { type: 'button', 'data-try': true, onclick: () => send(true) }, 'Try numbers');
  const place = element('form', { class: 'numbers', novalidate: true },
    element('div', { class: 'tier' }, rows, burstField, concurrencyField),
    element('div', { class: 'buttons' },
      element('button', { type: 'submit', class: 'primary' }, 'Apply numbers'), tryIt, add, takeBack));
  // Numbers are sent as numbers; what is none is for the service to refuse in its words.
  const number = (text) => (/^\d+$/.test(text) ? Number(text) : text);
  const read = () => ({
    tiers: [...rows.children].map((it) => ['period', 'threshold'].map((kind) => it.querySelector(`[name=${kind}]`).value.trim())),
    burst: burstField.hidden ? '' : burst.value.trim(),
    concurrency: concurrencyField.hidden ? '' : concurrency.value.trim(),
  });
  /** Numbers of a policy as the form has them. */
  const texts = (policy) => ({
    tiers: policy.tiers.map((it) => [period(it.period), String(it.threshold)]),
    burst: String(policy.burst ?? ''),
    concurrency: String(policy.concurrency ?? ''),
  });
  // Those of a dynamic limit come with each call: the form has those of the override.
  const ofOverride = () => {
    const what = said.overrides.find((it) => OWN.numbers.some((field) => it.what[field] !== undefined))?.what ?? {};
    const one = { period: what.period ?? '', threshold: what.threshold ?? '' };
    return {
      tiers: (what.tiers ?? [one]).map((it) => [length(it.period), String(it.threshold)]),
      burst: String(what.burst ?? ''),
      concurrency: String(what.concurrency ?? ''),
    };
  };
  /** The numbers of the form that the code does not have. */
  const differing = (form) => {
    const code = said.written ? texts(said.written) : { tiers: [['', '']], burst: '', concurrency: '' };
    const given = {};
    if (form.tiers.length === 1 && code.tiers.length === 1) {
      ['period', 'threshold'].forEach((field, index) => {
        const text = form.tiers[0][index];
        if (text !== '' && text !== code.tiers[0][index]) given[field] = number(text);
      });
    } else if (JSON.stringify(form.tiers) !== JSON.stringify(code.tiers)) {
      given.tiers = form.tiers.map(([length, threshold]) => ({ period: number(length), threshold: number(threshold) }));
    }
    for (const field of ['burst', 'concurrency']) {
      if (form[field] !== '' && form[field] !== code[field]) given[field] = number(form[field]);
    }
    return given;
  };
  const held = () => (said.unscaled ? texts(said.unscaled) : ofOverride());
  const isUntouched = () => JSON.stringify(read()) === filled;
  const fill = () => {
    const now = held();
    showAll(rows, now.tiers, (_, index) => index, () => tier('', ''));
    now.tiers.forEach(([length, threshold], index) => {
      const its = (kind) => rows.children[index].querySelector(`[name=${kind}]`);
      [its('period').value, its('threshold').value] = [length, threshold];
    });
    burstField.hidden = said.algorithm !== 'token_bucket' || now.tiers.length > 1;
    burst.value = now.burst;
    concurrencyField.hidden = now.concurrency === '';
    concurrency.value = now.concurrency;
    [filled, basis] = [JSON.stringify(read()), JSON.stringify(now)];
  };
  const send = (isTried) => {
    if (isUntouched()) return tell('No number was changed.', false);
    const now = JSON.stringify(held());
    if (isTried || now === basis) return apply(differing(read()), isTried);
    basis = now;
    // All numbers of the form are sent, also those that another operator has set since.
    return tell(`The numbers are now ${said.unscaled ? numbers(said.unscaled) : 'others'}, since this form was filled. Apply them again to replace those.`, true);
  };
  place.addEventListener('submit', (event) => {
    event.preventDefault();
    send(false);
  });
  return {
    place,
    describe(next) {
      said = next;
      const now = JSON.stringify(held());
      if (now === basis) return;
      if (isUntouched()) fill();
      else if (Date.now() < ownUntil) [basis, ownUntil] = [now, 0];
    },
    /** Starts from what holds now. */
    fill,
    expectChange(until) { ownUntil = until; },
  };
}
