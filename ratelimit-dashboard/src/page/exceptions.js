// Overrides of single callers of one limit: set, listed, searched and ended.

import { act } from './api.js';
import { confirmed } from './confirm.js';
import { element, id, say, showAll } from './elements.js';
import { keyOfToday, overridden, subject } from './format.js';

const KINDS = [['exempt', 'Exempt', { enforcement: 'off' }], ['deny', 'Shut out', { deny: true }]];

/** The form and the list; `named` returns the caller that the form beside it names, `words` the same in words. */
export function exceptions(name, scope, named, words) {
  const answer = element('p', { class: 'answer', 'aria-live': 'polite' });
  const list = element('ul', { class: 'exceptions' });
  const count = element('p', { class: 'hint' });
  const find = element('input', { type: 'search', id: id('find-caller'), name: 'find-caller', autocomplete: 'off', spellcheck: 'false' });
  const all = element('input', { type: 'checkbox', name: 'all-limits' });
  const threshold = element('input', { id: id('threshold'), name: 'exception-threshold', inputmode: 'numeric', size: 6, autocomplete: 'off' });

  let asked = 0;
  const load = async () => {
    asked += 1;
    const question = asked;
    try {
      const { callers, found } = await act('exceptions', { limit: name, find: find.value.trim() });
      // A later question has been asked since.
      if (question !== asked) return;
      showAll(list, callers, keyOfToday, row);
      say(count, found > callers.length ? `The first ${callers.length} of ${found}.` : found === 0 ? 'None.' : '');
    } catch (error) {
      say(count, error.message);
    }
  };
  const run = async (what, body, chosen, question, more) => {
    answer.classList.remove('bad');
    try {
      if (!await confirmed(chosen, question, more)) return;
      say(answer, (await act(what, { ...body, scope: chosen })).done);
    } catch (error) {
      answer.classList.add('bad');
      say(answer, error.message);
    }
    load();
  };
  const set = (what, kind) => {
    const limit = all.checked ? '*' : scope.limit();
    let times = {};
    try {
      times = scope.times();
    } catch (error) {
      answer.classList.add('bad');
      say(answer, error.message);
      return;
    }
    run('exception', { limit, caller: named(), what, ...times }, scope.scope(), `${subject(limit)}, caller ${words()}: ${kind}.`, scope.instead());
  };
  const row = (it) => element('li', {},
    element('span', { class: 'name' }, it.caller),
    element('span', { class: 'what' }, `${overridden(it.what)} `, element('span', { class: 'hint' },
      `(${it.limit === name ? '' : `${subject(it.limit)}, `}${it.by})`)),
    it.scope === null ? '' : element('button', {
      type: 'button', 'data-end': true, 'aria-label': `End the exception of ${it.caller}`,
      onclick: () => run('end-exception', { limit: it.limit, caller: it.caller }, it.scope, `${subject(it.limit)}, ${it.caller}: exception ended.`),
    }, 'End'));

  const form = element('form', { class: 'exception' },
    element('div', { class: 'buttons' },
      ...KINDS.map(([kind, label, what]) => element('button', {
        type: 'button', 'data-exception': kind, class: kind === 'deny' ? 'danger' : undefined,
        onclick: () => set(what, label.toLowerCase()),
      }, label))),
    element('div', { class: 'tier' },
      element('div', { class: 'field' }, element('label', { for: threshold.id }, 'Own threshold'), threshold),
      element('button', { type: 'submit' }, 'Set threshold'),
      element('label', {}, all, ' in all limits')));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const text = threshold.value.trim();
    set({ threshold: /^\d+$/.test(text) ? Number(text) : text }, `threshold ${text}`);
  });
  find.addEventListener('input', load);
  let latest = null;
  return {
    form, answer,
    list: element('div', {}, element('h3', {}, 'Callers with an override'),
      element('label', { for: find.id }, 'Find '), find, list, count),
    /** Loads the list anew after each change, and on another day. */
    describe(view) {
      const now = keyOfToday(view.changes[0]?.number);
      if (now !== latest) load();
      latest = now;
    },
  };
}
