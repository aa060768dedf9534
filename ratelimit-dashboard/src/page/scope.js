// Where an action takes effect, and when its override ends.

import { element, id, say } from './elements.js';
import { effect } from './format.js';

const SCOPES = [['process', 'This process'], ['fleet', 'Whole fleet']];
const ENDS = [['', 'off: in 1 hour, else as before'], ['never', 'never'], ['900', 'in 15 minutes'], ['3600', 'in 1 hour'],
  ['28800', 'in 8 hours'], ['at', 'at a time']];

/** The form; of a plan's name it also has the choice between the plan and its limit. */
export function scopeForm(name = '*') {
  const group = id('scope');
  const radios = SCOPES.map(([value, label]) => {
    const radio = element('input', { type: 'radio', name: group, value, 'data-scope': value });
    return { radio, label: element('label', {}, radio, ` ${label}`) };
  });
  const [process, fleet] = radios.map(({ radio }) => radio);
  const ends = element('select', { id: id('ends'), name: 'ends' },
    ...ENDS.map(([value, words]) => element('option', { value }, words)));
  const time = element('input', { type: 'datetime-local', name: 'until', 'aria-label': 'Time of the end', hidden: true });
  ends.addEventListener('change', () => { time.hidden = ends.value !== 'at'; });
  const plans = element('select', { id: id('plans'), name: 'plans' });
  const which = element('div', { class: 'ends', hidden: true }, element('label', { for: plans.id }, 'Of'), plans);
  const hint = element('p', { class: 'hint', role: 'status' });
  const place = element('div', { class: 'scope' },
    element('fieldset', {}, element('legend', {}, 'Changes take effect in'), ...radios.map(({ label }) => label)), which,
    element('div', { class: 'ends' }, element('label', { for: ends.id }, 'Override ends'), ends, time), hint);
  let view = null;
  // What the operator has chosen, or would by default; it is in effect whenever it can be.
  let wanted = 'fleet';
  for (const { radio } of radios) radio.addEventListener('click', () => { wanted = radio.value; });
  const tell = () => { if (view) say(hint, effect(view, fleet.checked)); };
  place.addEventListener('change', tell);
  const until = (isOff) => {
    const chosen = ends.value === '' && isOff ? '3600' : ends.value;
    if (chosen === '' || chosen === 'never') return chosen;
    if (chosen !== 'at') return new Date(Date.now() + chosen * 1000).toISOString();
    const at = new Date(time.value);
    if (!(at > Date.now())) throw new Error('Choose a time to come at which the override ends.');
    return at.toISOString();
  };
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
    /** Throws an error in words if no time was chosen. */
    end(isOff = false) {
      const chosen = until(isOff);
      return chosen === '' ? {} : { until: chosen };
    },
  };
}
