// The fields of an override with a value of their own, of a limit or of all.

import { element, id } from './elements.js';

/** By name: the label, the text of no value, the button, and the values that are offered. */
const FIELDS = [
  ['scale', 'Scale', 'none', 'Apply scale', []],
  ['on_store_error', 'While Redis is away', 'as in the code', 'Apply answer',
    ['local', 'local(50)', 'local(20)', 'local(5)', 'deny', 'allow']],
];

/** The fields; `apply` receives the name of one, and its value as it is written or null for none. */
export function valueFields(apply) {
  return FIELDS.map(([name, label, none, button, values]) => {
    const offered = element('datalist', { id: id('values') }, ...values.map((value) => element('option', { value })));
    const input = element('input', { id: id(name), name, list: offered.id, size: none.length + 2, autocomplete: 'off', spellcheck: 'false', placeholder: none });
    const send = () => {
      const text = input.value.trim();
      const number = text.replace(',', '.');
      apply(name, text === '' ? null : /^\d+(\.\d+)?$/.test(number) ? Number(number) : text);
    };
    return element('div', { class: 'tier' },
      element('div', { class: 'field' }, element('label', { for: input.id }, label), input, offered),
      element('button', { type: 'button', [`data-${name}`]: true, onclick: send }, button));
  });
}
