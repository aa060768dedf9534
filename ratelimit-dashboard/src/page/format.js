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

/** A number of calls. */
export const amount = (calls) => (calls < 10000 ? String(calls) : `${(calls / 1000).toFixed(0)}k`);

export const inFlight = (calls) => `${calls} in flight`;

export function numbers({ tiers, burst, concurrency, lease }) {
  const words = tiers.map((tier) => `${tier.threshold} per ${period(tier.period)}`);
  if (burst !== null) words.push(`burst ${burst}`);
  if (concurrency !== null) words.push(inFlight(concurrency));
  if (lease !== null) words.push(`lease ${period(lease)}`);
  return words.join(', ');
}

/** Where an action takes effect. */
export function effect(view, isFleet) {
  if (isFleet) return 'Written to Redis: in effect in the whole fleet within a second.';
  const only = 'In effect in this process only, before any other override.';
  return view.fleet_failure ? `Redis cannot be used: ${view.fleet_failure}. ${only}` : only;
}

export const ENFORCEMENT = { on: 'enforced', dry_run: 'dry run', off: 'off' };

/** Documents have whole seconds as numbers. */
export const length = (written) => (typeof written === 'number' ? period(written * 1000) : written);

/** A time of today, or of another day with its date. */
export function time(at) {
  const date = new Date(at);
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? date.toLocaleTimeString() : date.toLocaleString();
}

/** The key of what has times: it is another one tomorrow, when they have a date. */
export const keyOfToday = (it) => `${new Date().toDateString()} ${JSON.stringify(it)}`;

/** The mean of the last seconds, so that numbers can be read. */
export const recent = (list) => {
  const last = list.slice(-5).filter((value) => value !== null);
  return last.length === 0 ? 0 : last.reduce((sum, value) => sum + value, 0) / last.length;
};

export const subject = (limit) => (limit === '*' ? 'all limits' : limit);

/** An override in words. */
export function overridden(what) {
  if (Array.isArray(what)) return what.map(overridden).join('; ');
  const words = [];
  if (what.enforce) words.push(`enforced for ${what.enforce.replace('%', ' %')} of the callers`);
  if (what.enforcement) words.push(ENFORCEMENT[what.enforcement]);
  if (what.deny) words.push('shut out');
  for (const tier of what.tiers ?? []) words.push(`${tier.threshold} per ${length(tier.period)}`);
  if (what.threshold !== undefined) words.push(`threshold ${what.threshold}`);
  if (what.period !== undefined) words.push(`period ${length(what.period)}`);
  if (what.burst !== undefined) words.push(`burst ${what.burst}`);
  if (what.concurrency !== undefined) words.push(inFlight(what.concurrency));
  if (what.candidate !== undefined) words.push(`candidate ${overridden(what.candidate)}`);
  if (what.scale !== undefined) words.push(`scale ${what.scale}`);
  if (what.on_store_error !== undefined) words.push(`${what.on_store_error} while Redis is away`);
  if (what.from !== undefined) words.push(`from ${time(what.from)}`);
  if (what.until !== undefined) words.push(`until ${time(what.until)}`);
  return words.join(', ');
}
