// The callers of one limit that are refused most.

import { act } from './api.js';
import { element, id, say, showAll } from './elements.js';
import { isFleet } from './fleet.js';

const WINDOWS = [['minute', 'last minute'], ['ten_minutes', 'last 10 minutes'], ['hour', 'last hour']];

/** The list; `choose` receives the name of a caller that an operator picks. */
export function refusedCallers(name, choose) {
  const heading = id('heading');
  const list = element('ul', { class: 'refusedmost', 'aria-labelledby': heading });
  const hint = element('p', { class: 'hint' });
  const window = element('select', { id: id('window'), name: 'window' },
    ...WINDOWS.map(([value, words]) => element('option', { value }, words)));
  window.value = 'ten_minutes';
  const calls = (it) => (it.at_most_wrong > 0 ? `${it.calls - it.at_most_wrong} to ${it.calls} refused` : `${it.calls} refused`);
  const row = (it) => element('li', {},
    element('span', { class: 'name' }, it.name ?? 'a caller without a name'),
    element('span', { class: 'what' }),
    it.name === null ? '' : element('button', {
      type: 'button', 'data-choose': true, 'aria-label': `Choose ${it.name}`, onclick: () => choose(it.name),
    }, 'Choose'));
  let asked = 0;
  const load = async () => {
    asked += 1;
    const question = asked;
    try {
      const { callers, found } = await act('refused', { limit: name, window: window.value, is_fleet: isFleet() });
      // A later question has been asked since.
      if (question !== asked) return;
      showAll(list, callers, (it, index) => it.name ?? index, row);
      callers.forEach((it, index) => say(list.children[index].querySelector('.what'), calls(it)));
      const isNamed = callers.some((it) => it.name !== null);
      say(hint, found === 0 ? 'Nobody was refused.'
        : !isNamed ? 'The service does not show callers: see LimiterBuilder::show_callers and caller_digest.'
          : found > callers.length ? `The first ${callers.length} of ${found}.` : '');
    } catch (error) {
      say(hint, error.message);
    }
  };
  window.addEventListener('change', load);
  let latest = null;
  return {
    place: element('section', { class: 'card' },
      element('h3', { id: heading }, 'Refused most'),
      element('label', { for: window.id }, 'In the '), window, list, hint),
    /** Loads the list anew once more calls were refused. */
    count(counts) {
      const now = `${isFleet()} ${counts.refused}`;
      if (now !== latest) load();
      latest = now;
    },
  };
}
