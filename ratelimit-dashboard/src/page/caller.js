// One caller of one limit, as an operator names it: looked up, reset, or with an override of its own.

import { act } from './api.js';
import { confirmed } from './confirm.js';
import { element, id, say } from './elements.js';
import { exceptions } from './exceptions.js';
import { inFlight, period, wait } from './format.js';

const KINDS = [['text', 'is'], ['digest', 'is, as a digest (a header)'], ['none', 'is None'],
  ['shared', 'no caller (all share it)'], ['or', 'found by an alternative source'], ['refused', 'is in the list of refused callers']];
// Those that come with a text.
const TEXTS = ['text', 'digest', 'refused'];

export function callerForm(name, scope) {
  const parts = element('div', { class: 'parts' });
  const answer = element('div', { class: 'answer', 'aria-live': 'polite' });
  const hint = element('p', { class: 'hint' });
  const heading = id('heading');

  const part = (label) => {
    const text = element('input', { id: id('part'), name: 'part', autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false' });
    const kind = element('select', { 'aria-label': `What ${label} is` },
      ...KINDS.map(([value, words]) => element('option', { value }, words)));
    kind.addEventListener('change', () => { text.disabled = !TEXTS.includes(kind.value); });
    const made = element('div', { class: 'part' },
      element('label', { for: text.id }, label), kind, text,
      element('button', {
        type: 'button', class: 'quiet', 'aria-label': `Remove ${label}`,
        onclick: () => {
          if (parts.children.length > 1) made.remove();
        },
      }, '−'));
    return made;
  };
  const named = () => [...parts.children].map((it) => {
    const kind = it.querySelector('select').value;
    const text = it.querySelector('input').value;
    if (kind === 'refused') return { refused: { limit: name, name: text } };
    return TEXTS.includes(kind) ? { [kind]: text } : kind;
  });
  const words = () => named().map((it) => it.text ?? it.digest ?? it.refused?.name ?? it).join(', ');
  const ask = async (what) => {
    answer.classList.remove('bad');
    try {
      if (what === 'reset' && !await confirmed(scope.isShared() ? 'fleet' : 'process', `${name}, caller ${words()}: reset.`)) return;
      const quota = await act(what, { limit: name, caller: named() });
      answer.replaceChildren(element('dl', { class: 'facts' }, ...told(quota, what).flatMap(
        ([term, text, kind]) => [element('dt', {}, term), element('dd', { 'data-is': kind }, text)])));
    } catch (error) {
      answer.classList.add('bad');
      say(answer, error.message);
    }
  };
  const form = element('form', { class: 'caller' }, parts,
    element('div', { class: 'buttons' },
      element('button', { type: 'submit' }, 'Look up'),
      element('button', { type: 'button', class: 'danger', 'data-reset': true, onclick: () => ask('reset') }, 'Reset'),
      element('button', { type: 'button', class: 'quiet', onclick: () => parts.append(part(`Part ${parts.children.length + 1}`)) }, 'Add a part')));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    ask('caller');
  });
  const special = exceptions(name, scope, named, words);
  return {
    exceptions: special,
    /** Names a caller of the list of refused ones, and looks it up. */
    choose(refused) {
      const chosen = part('Caller');
      chosen.querySelector('select').value = 'refused';
      chosen.querySelector('input').value = refused;
      parts.replaceChildren(chosen);
      ask('caller');
    },
    place: element('section', { class: 'card', 'aria-labelledby': heading },
      element('h3', { id: heading }, 'One caller'), hint, form, answer,
      special.form, special.answer, special.list),
    describe(said) {
      const key = said.key ?? [];
      parts.replaceChildren(...(key.length > 0 ? key : ['Caller']).map(part));
      say(hint, key.length > 1
        ? 'The key has several parts, in the order of the source. Of a trait’s default method the type comes first.'
        : 'As the key’s value is written out. Of a trait’s default method the type is a first part.');
    },
  };
}

function told(quota, what) {
  const isReset = what === 'reset';
  if (quota.remaining === undefined) {
    const facts = isReset ? [['done', 'Reset.', 'done']] : [];
    if (quota.denied) facts.push(['calls', `shut out${quota.next === null ? '' : ` for ${wait(quota.next)}`}`, 'denied']);
    return facts;
  }
  const facts = isReset ? [['done', `Reset. ${quota.remaining} of ${quota.threshold} left.`, 'done']] : [];
  const limit = quota.period === 0 ? inFlight(quota.threshold) : `${quota.threshold} per ${period(quota.period)}`;
  const next = quota.next === null ? 'free as soon as a call in flight ends'
    : wait(quota.next) === 'now' ? 'free now' : `free in ${wait(quota.next)}`;
  const by = quota.is_by_latest_call ? ', by the latest call' : '';
  facts.push(['left', `${quota.remaining}`, 'left'], ['limit', `${limit}${by}`, 'limit'], ['next call', next, 'next']);
  if (quota.blocked !== null) facts.push(['blocked', `for ${wait(quota.blocked)}`, 'blocked']);
  if (quota.enforcement !== 'on') facts.push(['refusals', quota.enforcement === 'off' ? 'none: calls pass uncounted' : 'none: a dry run', 'refusals']);
  if (quota.period > 0) facts.push(['all back', wait(quota.reset) === 'now' ? 'now' : `in ${wait(quota.reset)}`, 'reset']);
  return facts;
}
