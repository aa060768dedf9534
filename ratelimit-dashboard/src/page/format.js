// Numbers and lengths of time, in words.

const UNITS = [['d', 86400000], ['h', 3600000], ['m', 60000], ['s', 1000], ['ms', 1]];

/** A period as it is written in the source, and as the service reads it: "1h 30m". */
export function period(milliseconds) {
  let left = Math.ceil(milliseconds);
  const words = [];
  for (const [unit, length] of UNITS) {
    const count = Math.floor(left / length);
    if (count > 0) words.push(`${count}${unit}`);
    left -= count * length;
  }
  return words.join(' ') || '0s';
}

/** A wait, rounded up: who comes back then is not too early. */
export function wait(milliseconds) {
  if (milliseconds <= 0) return 'now';
  if (milliseconds < 60000) return `${(Math.ceil(milliseconds / 100) / 10).toFixed(1)} s`;
  return period(Math.ceil(milliseconds / 1000) * 1000);
}

export function rate(perSecond) {
  if (perSecond === 0) return '0';
  if (perSecond < 10) return perSecond.toFixed(1);
  if (perSecond < 10000) return Math.round(perSecond).toString();
  return `${(perSecond / 1000).toFixed(1)}k`;
}

export const share = (part) => (part === null ? '–' : `${Math.floor(part * 100)} %`);

export const inFlight = (calls) => `${calls} in flight`;

export function numbers({ tiers, burst, concurrency, lease }) {
  const words = tiers.map((tier) => `${tier.threshold} per ${period(tier.period)}`);
  if (burst !== null) words.push(`burst ${burst}`);
  if (concurrency !== null) words.push(inFlight(concurrency));
  if (lease !== null) words.push(`lease ${period(lease)}`);
  return words.join(', ');
}

/** Where an action takes effect. */
export function effect(view) {
  if (view.is_fleet) return 'Written to Redis: in effect in the whole fleet within a second.';
  return view.fleet_failure
    ? `In effect in this process only, until it ends, because Redis cannot be used: ${view.fleet_failure}.`
    : 'In effect in this process only, until it ends.';
}

export const ENFORCEMENT = { on: 'on', dry_run: 'dry run', off: 'off' };
