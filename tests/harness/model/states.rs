//! The recorded state of one caller, and the rules of each algorithm for it.

use ratelimit_runtime::Algorithm;

use super::{
    By, Call, Charge, Rules, Tier,
    calls::{Calls, own_periods},
    entries::{Bucket, Counter, Window, bounded, full, give_back, is_same_bucket, parts},
    units::{MOST, Units},
};

/// The most tiers of other policies that a state keeps.
const OTHERS: usize = 8;

/// The state of one caller.
#[derive(Clone, Debug)]
pub(super) enum State {
    Units(Units),
    Calls(Calls),
    Windows(Kept<Window>),
    Counters(Kept<Counter>),
    Buckets(Kept<Bucket>),
}

/// An entry for each tier, also for those of other policies.
#[derive(Clone, Debug)]
pub(super) struct Kept<E> {
    generation: u64,
    by: By,
    last: u64,
    pub(super) entries: Vec<E>,
}

impl State {
    pub(super) fn empty(rules: &Rules, generation: u64, by: By) -> Self {
        match rules.algorithm {
            Algorithm::SlidingWindow => {
                // Redis has the period in milliseconds.
                let tick = if by == By::Instant { 1_000 } else { 1 };
                Self::Units(Units { generation, tick, ..Units::default() })
            }
            Algorithm::FixedWindow => Self::Windows(Kept::new(generation, by)),
            Algorithm::SlidingCounter => Self::Counters(Kept::new(generation, by)),
            Algorithm::TokenBucket => Self::Buckets(Kept::new(generation, by)),
            other => unreachable!("{other:?} has no model"),
        }
    }

    /// Brings the state to `now`, with the policy's tiers first. Returns `true` if the clock had
    /// stepped back behind the state, or a policy is new.
    pub(super) fn see(&mut self, rules: &Rules, arrival: u64, now: u64) -> bool {
        match self {
            Self::Units(log) => {
                let before = (log.capacity, log.period);
                for tier in rules.counted(log.by()) {
                    log.capacity = log.capacity.max(tier.threshold.min(MOST).into());
                    log.period = log.period.max(tier.period.div_ceil(log.tick) * log.tick);
                }
                // A step of the clock back is mended only if it matters.
                !log.charges.is_empty() && before != (log.capacity, log.period)
            }
            Self::Calls(log) => log.see(rules, arrival, now),
            Self::Windows(kept) => {
                let is_ahead = |it: &Window| it.open.is_some_and(|(start, _)| start > now);
                let is_ahead = kept.entries.iter().any(is_ahead);
                kept.entries.iter_mut().for_each(|it| it.see(now));
                kept.last = kept.last.min(now);
                let carried =
                    |tier: Tier, held: &[_], last| Window::carried(tier.period, held, last, now);
                let same = |it: &Window, tier: &Tier| it.period == tier.period;
                kept.arrange(rules, same, carried) || is_ahead
            }
            Self::Counters(kept) => {
                let is_ahead = kept.entries.iter().any(|it| it.window > now / it.period);
                kept.entries.iter_mut().for_each(|it| it.see(now));
                let carried =
                    |tier: Tier, held: &[_], last| Counter::carried(tier.period, held, last, now);
                let same = |it: &Counter, tier: &Tier| it.period == tier.period;
                let is_changed = kept.arrange(rules, same, carried) || is_ahead;
                // The windows are those of the last write.
                kept.last = if is_changed { now } else { kept.last };
                is_changed
            }
            Self::Buckets(kept) => {
                let is_ahead = kept.entries.iter().any(|it| it.at > now);
                kept.entries.iter_mut().for_each(|it| it.see(now));
                if kept.entries.iter().all(|it| it.level == full(it.tier)) {
                    // As without any call; there is nothing to refund either.
                    kept.renew(now);
                }
                kept.last = kept.last.min(now);
                let carried = |tier: Tier, held: &[_], last| Bucket::carried(tier, held, last, now);
                let same = |it: &Bucket, tier: &Tier| is_same_bucket(it.tier, *tier);
                let is_changed = kept.arrange(rules, same, carried) || is_ahead;
                kept.last = if is_changed { now } else { kept.last };
                is_changed
            }
        }
    }

    /// Returns `true` if the tier has room for these units at `now`, without other calls before.
    pub(super) fn has_room(&self, rules: &Rules, index: usize, now: u64, units: u32) -> bool {
        let tier = rules.tiers[index];
        let units = units + rules.left(index);
        let (units, threshold) = (u128::from(units), u128::from(tier.threshold));
        match self {
            Self::Units(log) => {
                let in_window = log.charges.iter().filter(|charge| charge.at + tier.period > now);
                in_window.count() as u128 + units <= threshold
            }
            Self::Calls(log) => log.live(tier.period, now) + units <= threshold,
            Self::Windows(kept) => {
                let open = kept.entries[index].open.filter(|(start, _)| now < start + tier.period);
                u128::from(open.map_or(0, |(_, units)| units)) + units <= threshold
            }
            Self::Counters(kept) => {
                let mut it = kept.entries[index].clone();
                it.see(now);
                let tick = (threshold * u128::from(tier.period)).div_ceil(1 << 53);
                let ticks = u128::from(tier.period) / tick;
                let left =
                    u128::from((it.window + 1) * tier.period - now).div_ceil(tick).min(ticks);
                // More units than that weigh no more.
                let previous = u128::from(it.previous).min((1 << 53) / ticks);
                previous * left + (u128::from(it.current) + units) * ticks <= threshold * ticks
            }
            Self::Buckets(kept) => {
                let mut it = kept.entries[index];
                it.see(now);
                it.level >= parts(it.tier, units)
            }
        }
    }

    /// Returns the charge of a call with this id, if it still counts.
    pub(super) fn charged(&self, id: u64, now: u64, longest: u64) -> Option<Charge> {
        if let Self::Calls(log) = self { log.charged(id, now, longest) } else { None }
    }

    /// Returns `true` if a log of single units does not suffice for a call that is recorded at this
    /// time.
    pub(super) fn needs_calls(&self, rules: &Rules, call: Call, at: u64, by: By) -> bool {
        let waits = match by {
            By::Number => call.max_wait > 0,
            By::Instant => at > call.now || call.max_wait > 0 && !rules.count_rejected,
        };
        let is_single = call.cost == 1 && call.id.is_none();
        let is_single = is_single && rules.counted(by).all(|tier| tier.threshold <= MOST);
        matches!(self, Self::Units(_)) && (waits || !is_single)
    }

    /// Drops what no policy counts any more, in memory. Units stay until the call after the one
    /// that makes calls of them.
    pub(super) fn drop_old(&mut self, now: u64) {
        if let Self::Calls(log) = self
            && log.by() == By::Number
        {
            log.drop_old(now);
        }
    }

    /// Makes calls of the units of a log, for a call that comes now and is decided for `at`.
    pub(super) fn become_calls(&mut self, rules: &Rules, now: u64, at: u64) {
        if let Self::Units(log) = self {
            let own = own_periods(rules, log.by());
            *self = Self::Calls(Calls::of_units(std::mem::take(log), own, now, at));
        }
    }

    /// The same for a settle, which counts for no policy.
    pub(super) fn make_calls(&mut self, now: u64) {
        if let Self::Units(log) = self {
            *self = Self::Calls(Calls::of_units(std::mem::take(log), Vec::new(), now, now));
        }
    }

    /// Records the units of a call in all entries that count them. Returns the generation for a
    /// refund.
    pub(super) fn record(
        &mut self,
        rules: &Rules,
        admitted: bool,
        arrival: u64,
        charge: Charge,
        by: By,
    ) -> u64 {
        let (now, units) = (charge.at, u64::from(charge.cost));
        let own = rules.tiers.len();
        match self {
            Self::Units(log) => {
                log.record(Charge { life: log.generation, ..charge }, by);
                log.generation
            }
            Self::Calls(log) => log.record(arrival, admitted, charge),
            Self::Windows(kept) => {
                for it in &mut kept.entries {
                    let (start, held) = it.open.unwrap_or((now, 0));
                    it.open = (held + units > 0).then_some((start, held + units));
                    it.charges.push(now);
                }
                kept.write(now)
            }
            Self::Counters(kept) => {
                let mut grown = 0;
                for (it, tier) in kept.entries.iter_mut().zip(&rules.tiers) {
                    let most = if admitted { u64::MAX } else { tier.threshold.into() };
                    let after = (it.current + units).min(most).max(it.current);
                    grown = grown.max(after - it.current);
                    it.current = after;
                }
                for it in kept.entries.iter_mut().skip(own) {
                    it.current = (it.current + grown).min(u32::MAX.into());
                }
                kept.entries.iter_mut().for_each(|it| it.charge(now));
                kept.write(now)
            }
            Self::Buckets(kept) => {
                let mut tokens = 0;
                for it in kept.entries.iter_mut().take(own) {
                    let held = it.level.max(0).unsigned_abs().div_ceil(it.tier.period.into());
                    tokens = tokens.max(held.min(units.into()));
                    it.take(units.into());
                }
                let charged = kept.charged(now);
                for it in kept.entries.iter_mut().skip(own) {
                    if admitted { it.follow(tokens, charged) } else { it.take(tokens) }
                }
                kept.write(now)
            }
        }
    }

    /// Repairs a log that refuses a call because of units more than a period in the future: they
    /// move to now, or, if they are many, the log is cleared.
    pub(super) fn mend(&mut self, rules: &Rules, now: u64, at: &mut u64) -> bool {
        let is_ahead = match self {
            Self::Units(log) => log.charges.iter().any(|it| it.at > now + rules.shortest()),
            Self::Calls(log) => log.is_ahead(rules, *at),
            _ => false,
        };
        if !is_ahead {
            return false;
        }
        self.become_calls(rules, now, *at);
        if let Self::Calls(log) = self
            && !log.mend(rules, now, at)
        {
            *self = Self::empty(rules, now, By::Instant);
            self.see(rules, now, now);
        }
        true
    }

    /// Returns the generation.
    pub(super) fn life(&self) -> u64 {
        match self {
            Self::Units(log) => log.generation,
            Self::Calls(_) => unreachable!("a log of calls settles its charges itself"),
            Self::Windows(kept) => kept.generation,
            Self::Counters(kept) => kept.generation,
            Self::Buckets(kept) => kept.generation,
        }
    }

    /// Records units beyond those of an admitted call in all entries, in one of this tier if there
    /// is none.
    pub(super) fn raise(&mut self, tier: Tier, now: u64, units: u32) {
        let (units, most) = (u64::from(units), u64::from(u32::MAX));
        match self {
            Self::Units(_) => unreachable!("a log that is raised has calls"),
            Self::Calls(log) => log.start_with(tier.period, now, units),
            Self::Windows(kept) => {
                kept.entries.iter_mut().for_each(|it| it.see(now));
                if kept.entries.is_empty() {
                    kept.entries.push(Window::carried(tier.period, &[], 0, now));
                }
                for it in &mut kept.entries {
                    let (start, held) = it.open.unwrap_or((now, 0));
                    it.open = Some((start, (held + units).min(most)));
                }
                kept.write(now);
            }
            Self::Counters(kept) => {
                kept.entries.iter_mut().for_each(|it| it.see(now));
                if kept.entries.is_empty() {
                    kept.entries.push(Counter::carried(tier.period, &[], 0, now));
                }
                for it in &mut kept.entries {
                    it.current = (it.current + units).min(most);
                }
                kept.write(now);
            }
            Self::Buckets(kept) => {
                kept.entries.iter_mut().for_each(|it| it.see(now));
                if kept.entries.iter().all(|it| it.level == full(it.tier)) {
                    kept.renew(now);
                }
                if kept.entries.is_empty() {
                    kept.entries.push(Bucket::carried(tier, &[], 0, now));
                }
                for it in &mut kept.entries {
                    it.level = bounded(it.tier, it.level - parts(it.tier, units.into()));
                }
                kept.write(now);
            }
        }
    }

    /// Records the units of a turn in all entries, of which there are some. A bucket that is full
    /// then gets the generation that the call was told.
    pub(super) fn add_turn(&mut self, now: u64, units: u32, told: u64) {
        let unused = Tier { period: 1, threshold: 1, capacity: 1 };
        let is_full = |mut it: Bucket| {
            it.see(now);
            it.level == full(it.tier)
        };
        let is_renewed =
            matches!(self, Self::Buckets(kept) if kept.entries.iter().copied().all(is_full));
        self.raise(unused, now, units);
        match self {
            Self::Windows(kept) => kept.entries.iter_mut().for_each(|it| it.charges.push(now)),
            Self::Counters(kept) => kept.entries.iter_mut().for_each(|it| it.charge(now)),
            _ => {}
        }
        if let (Self::Buckets(kept), true) = (self, is_renewed) {
            kept.generation = told;
        }
    }

    /// Leaves a unit in each of several windows that were open: otherwise one starts with a later
    /// turn, and lasts into the next.
    pub(super) fn keep_open(&mut self, before: &Self) {
        if let (Self::Windows(kept), Self::Windows(before)) = (self, before) {
            let both = kept.entries.iter_mut().zip(&before.entries);
            for (it, before) in both.filter(|_| before.entries.len() > 1) {
                it.open = it.open.or(before.open.map(|(start, _)| (start, 1)));
            }
        }
    }

    /// Returns `true` if the state has an entry for each tier.
    pub(super) fn counts_for(&self, rules: &Rules) -> bool {
        rules.tiers.iter().chain(&rules.written).all(|tier| match self {
            Self::Units(_) | Self::Calls(_) => true,
            Self::Windows(kept) => kept.entries.iter().any(|it| it.period == tier.period),
            Self::Counters(kept) => kept.entries.iter().any(|it| it.period == tier.period),
            Self::Buckets(kept) => kept.entries.iter().any(|it| is_same_bucket(it.tier, *tier)),
        })
    }

    /// Returns `true` if it has several fixed windows.
    pub(super) fn has_windows(&self) -> bool {
        matches!(self, Self::Windows(kept) if kept.entries.len() > 1)
    }

    /// Lowers the units of a charge to `to`.
    pub(super) fn lower(&mut self, charge: Charge, to: u32, by: By) {
        let units = u64::from(charge.cost - to);
        match self {
            Self::Units(log) => log.remove(charge, by),
            Self::Calls(_) => unreachable!("a log of calls settles its charges itself"),
            Self::Windows(kept) if kept.generation == charge.life => {
                kept.entries.iter_mut().for_each(|it| it.lower(charge.at, units));
            }
            Self::Counters(kept) if kept.generation == charge.life => {
                kept.entries.iter_mut().for_each(|it| it.lower(charge.at, units));
            }
            Self::Buckets(kept) if kept.generation == charge.life => {
                give_back(&mut kept.entries, charge.at, units);
            }
            _ => {}
        }
    }
}

impl Kept<Bucket> {
    /// The time of a charge that is made now. One of the microsecond in which a bucket was added is
    /// its own.
    pub(super) fn charged(&self, now: u64) -> u64 {
        self.entries.iter().map(|it| it.since).fold(now, u64::max)
    }
}

impl<E: Clone> Kept<E> {
    fn new(generation: u64, by: By) -> Self {
        Self { generation, by, last: 0, entries: Vec::new() }
    }

    /// Starts another life. Two copies of a state that do so at the same time have the same one.
    fn renew(&mut self, now: u64) {
        self.generation = match self.by {
            By::Instant => now,
            By::Number => {
                // The first product spreads numbers: those of two states differ by as few bits as
                // two times.
                let mix = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
                mix(mix(self.generation) ^ now)
            }
        };
    }

    fn write(&mut self, now: u64) -> u64 {
        self.last = now;
        self.generation
    }

    fn arrange(
        &mut self,
        rules: &Rules,
        is: impl Fn(&E, &Tier) -> bool,
        carried: impl Fn(Tier, &[E], u64) -> E,
    ) -> bool {
        let mut is_new = false;
        let held = std::mem::take(&mut self.entries);
        let tiers: Vec<_> = rules.tiers.iter().chain(&rules.written).collect();
        for (index, tier) in tiers.iter().enumerate() {
            let is_double =
                tiers[..index].iter().any(|before| is(&carried(**before, &held, self.last), tier));
            if !is_double {
                let known = held.iter().find(|it| is(it, tier)).cloned();
                is_new |= known.is_none();
                self.entries.push(known.unwrap_or_else(|| carried(**tier, &held, self.last)));
            }
        }
        let others = held.iter().filter(|it| !tiers.iter().any(|tier| is(it, tier)));
        let room = (rules.tiers.len() + OTHERS).saturating_sub(self.entries.len());
        self.entries.extend(others.take(room).cloned());
        is_new
    }
}
