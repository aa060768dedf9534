// The factor of the numbers of a limit, or of all.

import { element, id } from './elements.js';

/** The field; `apply` receives the factor as it is written, or null for none. */
export function scaleField(apply) {
  const input = element('input', { id: id('scale'), name: 'scale', inputmode: 'decimal', size: 6, autocomplete: 'off', placeholder: 'none' });
  const send = () => {
    const text = input.value.trim().replace(',', '.');
    apply(text === '' ? null : /^\d+(\.\d+)?$/.test(text) ? Number(text) : text);
  };
  return element('div', { class: 'tier' },
    element('div', { class: 'field' }, element('label', { for: input.id }, 'Scale'), input),
    element('button', { type: 'button', 'data-scale': true, onclick: send }, 'Apply scale'));
}
