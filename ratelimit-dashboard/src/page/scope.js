// Where an action takes effect, and when its override begins and ends.

import { element, id, say } from './elements.js';
import { effect } from './format.js';

const SCOPES = [['process', 'This process'], ['fleet', 'Whole fleet']];
const ENDS = [['', 'off: in 1 hour, else as before'], ['never', 'never'], ['900', 'in 15 minutes'], ['3600', 'in 1 hour'],
  ['28800', 'in 8 hours'], ['at', 'at a time']];

const BEGINS = [['', 'now, or as before'], ['never', 'now'], ['at', 'at a time']];

/** A choice of a time, and a field for one; `chosen` returns the word, or a time to come. */
function timeChoice(label, names, choices) {
  const [word, name] = names;
  const choice = element('select', { id: id(word), name: word }, ...choices.map(([value, words]) => element('option', { value }, words)));
  const time = element('input', { type: 'datetime-local', name, 'aria-label': `Time: ${label}`, hidden: true });
  choice.addEventListener('change', () => { time.hidden = choice.value !== 'at'; });
  return {
    choice,
    place: element('div', { class: 'ends' }, element('label', { for: choice.id }, label), choice, time),
    chosen() {
      const { value } = choice;
      if (value === '' || value === 'never') return value;
      if (value !== 'at') return new Date(Date.now() + value * 1000).toISOString();
      const at = new Date(time.value);
      if (!(at > Date.now())) throw new Error(`Choose a time to come: ${label.toLowerCase()}.`);
      return at.toISOString();
    },
  };
}

/** The form; of a plan's name it also has the choice between the plan and its limit. */
export function scopeForm(name = '*') {
  const group = id('scope');
  const radios = SCOPES.map(([value, label]) => {
    const radio = element('input', { type: 'radio', name: group, value, 'data-scope': value });
    return { radio, label: element('label', {}, radio, ` ${label}`) };
  });
  const [process, fleet] = radios.map(({ radio }) => radio);
  const begin = timeChoice('Override begins', ['begins', 'from'], BEGINS);
  const end = timeChoice('Override ends', ['ends', 'until'], ENDS);
  const plans = element('select', { id: id('plans'), name: 'plans' });
  const which = element('div', { class: 'ends', hidden: true }, element('label', { for: plans.id }, 'Of'), plans);
  const hint = element('p', { class: 'hint', role: 'status' });
  const place = element('div', { class: 'scope' },
    element('fieldset', {}, element('legend', {}, 'Changes take effect in'), ...radios.map(({ label }) => label)), which,
    begin.place, end.place, hint);
  let view = null;
  // What the operator has chosen, or would by default; it is in effect whenever it can be.
  let wanted = 'fleet';
  for (const { radio } of radios) radio.addEventListener('click', () => { wanted = radio.value; });
  const tell = () => { if (view) say(hint, effect(view, fleet.checked)); };
  place.addEventListener('change', tell);
  return {
    place,
    describe(next, limit = name) {
      if (limit !== name && which.hidden) {
        which.hidden = false;
        plans.replaceChildren(element('option', { value: name }, name), element('option', { value: limit }, `${limit}, all plans`));
      }
      const usable = next.follows_fleet && next.fleet_failure === null;
      // At 3 a.m. an action that holds is worth more than one on the fleet that fails.
      (usable && wanted === 'fleet' ? fleet : process).checked = true;
      fleet.disabled = !usable;
      view = next;
      tell();
    },
    /** The name whose override is changed. */
    limit: () => (which.hidden ? name : plans.value),
    /** `true` if Redis counts the calls of all processes. */
    isShared: () => view?.store === 'redis',
    scope: () => (fleet.checked ? 'fleet' : 'process'),
    /** Why an action has less effect than the operator wanted, to be asked before it. */
    instead: () => (wanted === 'fleet' && view?.fleet_failure ? effect(view, false) : ''),
    /** The begin and the end, in the place of `before` if that is known. Throws an error in words if no time was chosen. */
    times(isOff = false, before = undefined) {
      const times = { from: begin.chosen(), until: end.chosen() };
      // An off that begins later ends an hour after that.
      const start = Math.max(Date.now(), Date.parse(times.from || before?.from) || 0);
      if (isOff && times.until === '') times.until = new Date(start + 3600000).toISOString();
      return Object.fromEntries(Object.entries(times).filter(([, time]) => time !== ''));
    },
  };
}
