// The question before a change of the whole fleet, or of more than was asked for.

import { say } from './elements.js';

const dialog = document.getElementById('confirm');

for (const [name, answer] of [['confirm-no', ''], ['confirm-yes', 'yes']]) {
  document.getElementById(name).addEventListener('click', () => dialog.close(answer));
}

/** Asks, unless only this process is changed and there is no `more` to say. */
export function confirmed(scope, text, more = '') {
  if (scope !== 'fleet' && more === '') return Promise.resolve(true);
  say(document.getElementById('confirm-title'), scope === 'fleet' ? 'Change the whole fleet?' : 'Change this process?');
  say(document.getElementById('confirm-yes'), scope === 'fleet' ? 'Change the fleet' : 'Change this process');
  say(document.getElementById('confirm-text'), `${text} ${more}`.trim());
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise((tell) => {
    dialog.addEventListener('close', () => tell(dialog.returnValue === 'yes'), { once: true });
  });
}
