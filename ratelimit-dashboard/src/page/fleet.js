// The counts of the whole fleet: its processes report them while they are shown.

import { ask } from './api.js';
import { element, say } from './elements.js';
import { rate, time } from './format.js';

const INTERVAL = 2000;
/** The reports of a process between which rates are computed. */
const KEPT = 4;

const at = (name) => document.getElementById(name);
const choice = at('counts');
/** By id, the last reports of each process. */
const reports = new Map();
let asked = 0;

export const isFleet = () => choice.value === 'fleet';

/** The admitted, refused, undecided and all calls of a limit a second, of one process. */
function rates(of, name) {
  const [first, last] = [of[0], of.at(-1)];
  const seconds = (last.reported - first.reported) / 1000;
  const now = last.limits[name] ?? [];
  return [0, 1, 2, 3].map((count) => (seconds > 0 ? ((now[count] ?? 0) - (first.limits[name]?.[count] ?? 0)) / seconds : 0));
}

/** The sums of lists of this length. */
const sum = (length, lists) => Array.from({ length }, (_, index) => lists.reduce((all, list) => all + list[index], 0));

/** The sums of a limit over the fleet; null while this process is shown. */
export function fleetOf(name) {
  if (!isFleet()) return null;
  const all = [...reports.values()];
  const [admittedRate, refusedRate] = sum(4, all.map((of) => rates(of, name)));
  return { admittedRate, refusedRate, refused: sum(3, all.map((of) => of.at(-1).limits[name]?.slice(4) ?? [0, 0, 0])), at_limit: 0 };
}

function row(of) {
  const last = of.at(-1);
  const [admitted, refused, undecided, calls] = sum(4, Object.keys(last.limits).map((name) => rates(of, name)));
  // Older builds do not report all calls.
  const all = Math.max(calls, admitted + refused, undecided);
  return element('li', {},
    element('span', { class: 'name' }, last.name),
    element('span', { class: 'what' }, `${last.version ? `version ${last.version}, ` : ''}since ${time(last.started)}: `
      + `${rate(admitted)} admitted/s, ${rate(refused)} refused/s`
      + (undecided > 0 ? `, Redis did not decide ${Math.ceil((undecided / all) * 100)} %` : '')));
}

function take(processes, known) {
  for (const id of reports.keys()) {
    if (!processes.some((process) => process.id === id)) reports.delete(id);
  }
  for (const process of processes) {
    const of = reports.get(process.id) ?? [];
    if (of.at(-1)?.reported !== process.reported) of.push(process);
    reports.set(process.id, of.slice(-KEPT));
  }
  at('fleet-rows').replaceChildren(...[...reports.values()].map(row));
  const others = [...new Set(processes.flatMap((process) => Object.keys(process.limits)))].filter((name) => !known.has(name));
  const count = `${processes.length} ${processes.length === 1 ? 'process reports' : 'processes report'} every two seconds.`;
  say(at('fleet-hint'), others.length === 0 ? count : `${count} Limits of other processes alone: ${others.join(', ')}.`);
}

/** Shows what the viewer chooses; `limits` are those that the page lists, and `show` is called after each answer. */
export function followFleet(limits, show) {
  const load = async () => {
    asked += 1;
    const question = asked;
    at('fleet').hidden = !isFleet();
    if (!isFleet()) return;
    try {
      const processes = await ask('fleet');
      if (question !== asked) return;
      take(processes, limits);
    } catch (error) {
      if (question !== asked) return;
      say(at('fleet-hint'), error.message);
    }
    show();
    setTimeout(() => { if (question === asked) load(); }, INTERVAL);
  };
  choice.addEventListener('change', () => {
    reports.clear();
    say(at('fleet-hint'), 'Waiting for the reports of the processes.');
    load();
    show();
  });
  return {
    /** There is a choice if processes follow the same overrides. */
    describe(view) {
      at('counts-of').hidden = !view.follows_fleet;
      if (!view.follows_fleet) choice.value = 'process';
    },
  };
}
