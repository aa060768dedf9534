// The question before a change of the whole fleet.

import { say } from './elements.js';

const dialog = document.getElementById('confirm');

for (const [name, answer] of [['confirm-no', ''], ['confirm-yes', 'yes']]) {
  document.getElementById(name).addEventListener('click', () => dialog.close(answer));
}

/** Asks, unless only this process is changed. */
export function confirmed(scope, text) {
  if (scope !== 'fleet') return Promise.resolve(true);
  say(document.getElementById('confirm-text'), text);
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise((tell) => {
    dialog.addEventListener('close', () => tell(dialog.returnValue === 'yes'), { once: true });
  });
}
