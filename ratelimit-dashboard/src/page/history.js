// The last changes of overrides, and the undoing of one.

import { act } from './api.js';
import { confirmed } from './confirm.js';
import { element, mayAct, say, showAll } from './elements.js';
import { keyOfToday, overridden, subject, time } from './format.js';

const place = document.getElementById('changes');
const rows = document.getElementById('change-rows');
const answer = document.getElementById('change-answer');

export function showChanges(changes) {
  place.hidden = changes.length === 0;
  showAll(rows, changes, keyOfToday, row);
}

/** The start of the process, and the changes of overrides of limits, as marks in a plot. */
export function marksOf(view, isShown = () => true) {
  const start = { at: view.started / 1000, label: `start${view.version ? ` ${view.version}` : ''}` };
  const changes = view.changes.filter((it) => it.source !== 'reset' && !it.is_of_caller && isShown(it));
  const mark = (it) => ({ at: it.at / 1000, label: `${subject(it.limit)}: ${it.after ? overridden({ ...it.after, until: undefined }) : 'no override'}` });
  return [start, ...changes.map(mark).reverse()];
}

function row(change) {
  const value = (what) => (what === null ? 'none' : overridden(what));
  const isReset = change.source === 'reset';
  const text = isReset ? 'reset' : `${value(change.before)} → ${value(change.after)}`;
  const limit = subject(change.limit) + (change.is_of_caller ? ', one caller' : '');
  const undo = change.is_last && mayAct
    ? element('button', { type: 'button', 'data-undo': change.number, 'aria-label': `Undo: ${limit}, ${text}`,
      onclick: () => undoing(change, limit, value(change.before)) }, 'Undo')
    : '';
  return element('li', {},
    element('time', { datetime: new Date(change.at).toISOString() }, time(change.at)),
    element('span', { class: 'who' }, change.operator ?? 'unknown'),
    element('span', { class: 'what' }, element('b', {}, limit), `: ${text} `,
      isReset ? '' : element('span', { class: 'hint' }, `(${change.source})`)),
    undo);
}

async function undoing(change, limit, before) {
  answer.classList.remove('bad');
  const scope = change.is_fleet ? 'fleet' : 'process';
  if (!await confirmed(scope, `Undo for ${limit}: back to ${before}.`)) return;
  try {
    say(answer, (await act('undo', { number: change.number })).done);
  } catch (error) {
    answer.classList.add('bad');
    say(answer, error.message);
  }
}
