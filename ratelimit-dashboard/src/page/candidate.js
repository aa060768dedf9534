// The numbers that a limit tries, and what they would have answered.

import { element, id, say } from './elements.js';
import { overridden, time } from './format.js';

const share = (part, whole) => `${part} of ${whole} (${whole === 0 ? 0 : Math.round((part / whole) * 100)} %)`;

/** The card; `run` does something by a button. */
export function candidateCard(run) {
  const heading = id('heading');
  const what = element('p', { 'data-candidate': 'numbers' });
  const calls = element('p', { 'data-candidate': 'calls' });
  let tried = null;
  const of = (body) => ({ ...body, limit: tried.limit, scope: tried.scope });
  // The one that is shown: another operator may have changed it since.
  const apply = element('button', { type: 'button', class: 'primary', 'data-apply-candidate': true,
    onclick: () => run('apply-candidate', of({ seen: tried.what.candidate }), 'the candidate is applied') }, 'Apply candidate');
  const end = element('button', { type: 'button', 'data-end-candidate': true,
    onclick: () => run('candidate', of({ numbers: null }), 'the candidate ends') }, 'End candidate');
  const place = element('section', { class: 'card', 'aria-labelledby': heading, hidden: true },
    element('h3', { id: heading }, 'Candidate'), what, calls, element('div', { class: 'buttons' }, apply, end));
  return {
    place,
    describe(said) {
      tried = said.overrides.find((it) => it.what.candidate !== undefined) ?? null;
      place.hidden = tried === null;
      if (tried === null) return;
      say(what, `${overridden(tried.what.candidate)}, tried by ${tried.what.by ?? tried.by}. It refuses nobody.`);
      // It is ended where it is written.
      apply.disabled = end.disabled = tried.scope === null;
    },
    count({ candidate }) {
      if (!candidate) {
        say(calls, 'It has decided no call of this process yet.');
        return;
      }
      const admits = candidate.newly_admitted > 0 ? ` It would have admitted ${candidate.newly_admitted} calls that were refused.` : '';
      const otherwise = candidate.refused_otherwise > 0 ? ` ${candidate.refused_otherwise} more calls were refused for another reason than the numbers.` : '';
      say(calls, `Since ${time(candidate.since)}: it would have refused ${share(candidate.refused, candidate.calls)} calls, `
        + `${candidate.newly_refused} of them admitted now, and calls of ${share(candidate.refused_callers, candidate.callers)} callers.${admits}${otherwise}`);
    },
  };
}
