//! The specification: what each algorithm decides, in a few plain lines each.
//!
//! An algorithm says here only whether a tier has room for some units at some time, and what is
//! written when units are recorded. How many units are left, how long to wait and when the quota
//! is back are searched for with that question alone.

use std::collections::HashMap;

use ratelimit_runtime::{Algorithm, Policy};

/// A log on Redis does away with no more units than this at once.
const AT_ONCE: u64 = 500;

/// What a call is told. Times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the call is admitted.
    pub admitted: bool,
    /// Refused: the tier with the longest wait. Admitted: the one with the fewest units left.
    pub tier: usize,
    /// The units left in that tier.
    pub remaining: u32,
    /// Until the call is admitted, or until more than `remaining` can be had.
    pub wait: u64,
    /// Until the full quota is back.
    pub reset: u64,
    /// Refused: until `remaining + 1` units can be had. Admitted: 0.
    pub more: u64,
}

/// All callers of one policy.
#[derive(Debug)]
pub struct Model {
    algorithm: Algorithm,
    count_rejected: bool,
    tiers: Vec<Tier>,
    callers: HashMap<usize, State>,
}

#[derive(Clone, Copy, Debug)]
struct Tier {
    period: u64,
    threshold: u32,
    /// The units that can be had after a long time without calls.
    capacity: u32,
}

/// What was written about one caller.
#[derive(Clone, Debug, PartialEq)]
enum State {
    /// When units were recorded, and how many, oldest first.
    Log(Vec<(u64, u64)>),
    /// For each tier the open window, if there is one: its start and the units in it.
    Windows(Vec<Option<(u64, u64)>>),
    /// For each tier the number of a window since the beginning of time, the units in the window
    /// before it, and its own.
    Counters(Vec<(u64, u64, u64)>),
    /// For each tier when the bucket was last looked at, and how much was in it. A token is as
    /// many parts as the period has microseconds, and the threshold comes back each microsecond.
    Buckets(Vec<(u64, u128)>),
}

impl Model {
    /// The model of a policy; `burst` as it was given to the policy.
    pub fn new(policy: &Policy, burst: Option<u32>) -> Self {
        let tiers = policy.tiers().iter().map(|tier| Tier {
            period: u64::try_from(tier.period().as_micros()).expect("at most 366 days"),
            threshold: tier.threshold(),
            capacity: burst.unwrap_or(tier.threshold()),
        });
        Self {
            algorithm: policy.algorithm(),
            count_rejected: policy.counts_rejected(),
            tiers: tiers.collect(),
            callers: HashMap::new(),
        }
    }

    /// Decides a call, and records it unless it only looks.
    pub fn decide(&mut self, caller: usize, now: u64, cost: u32, record: bool) -> Answer {
        let written = self.callers.get(&caller).cloned().unwrap_or_else(|| self.empty(now));
        let mut before = self.seen_at(&written, now);
        let is_admitted = |state: &State| {
            cost == 0 || (0..self.tiers.len()).all(|tier| self.has_room(state, tier, now, cost))
        };
        let mut admitted = is_admitted(&before);
        let mended = if admitted { None } else { self.mended(&before, now) };
        let is_mended = mended.is_some() || is_ahead(&written, &self.tiers, now);
        if let Some(mended) = mended {
            admitted = is_admitted(&mended);
            self.callers.insert(caller, mended.clone());
            before = mended;
        }
        let recorded = admitted || self.count_rejected;
        let after = if recorded { self.with_units(&before, now, cost) } else { before };
        let mut answer = self.answer(&after, admitted, now, cost);
        if recorded && cost > 0 && matches!(after, State::Log(_)) {
            // Counted from this call, also while a clock has not caught up yet.
            answer.reset = self.tiers.iter().map(|tier| tier.period).max().unwrap_or(0);
        }
        if record && (recorded || is_mended) {
            self.callers.insert(caller, after);
        }
        answer
    }

    /// What becomes of a log that refuses a call while it holds units of a time more than a period
    /// ahead: they are of now, or, if they are many, it is forgotten.
    fn mended(&self, state: &State, now: u64) -> Option<State> {
        let State::Log(log) = state else { return None };
        let shortest = self.tiers.iter().map(|tier| tier.period).min()?;
        if log.iter().all(|(at, _)| *at <= now + shortest) {
            return None;
        }
        let ahead = log.iter().filter(|(at, _)| *at > now).map(|(_, units)| *units).sum::<u64>();
        let largest = self.tiers.iter().map(|tier| tier.threshold).max()?;
        if ahead.min(largest.into()) > AT_ONCE {
            return Some(self.empty(now));
        }
        Some(State::Log(log.iter().map(|(at, units)| (*at.min(&now), *units)).collect()))
    }

    fn answer(&self, state: &State, admitted: bool, now: u64, cost: u32) -> Answer {
        let tiers = self.tiers.iter().enumerate().map(|(index, tier)| {
            let remaining = most(tier.capacity, |units| self.has_room(state, index, now, units));
            let wanted = if admitted { remaining + 1 } else { u64::from(cost) };
            let until = |units: u64| {
                let units = u32::try_from(units).unwrap_or(u32::MAX).min(tier.capacity);
                soonest(|wait| self.has_room(state, index, now + wait, units))
            };
            let remaining = u32::try_from(remaining).expect("at most the capacity");
            (index, remaining, until(wanted), until(tier.capacity.into()))
        });
        let tiers: Vec<_> = tiers.collect();
        // Of equals, the first one speaks.
        let speaks = tiers.iter().rev().max_by_key(|(_, remaining, wait, _)| {
            let fewest = if admitted { u32::MAX - remaining } else { 0 };
            (fewest, *wait)
        });
        let &(tier, remaining, wait, _) = speaks.expect("a policy has a tier");
        let reset = tiers.iter().map(|(_, _, _, reset)| *reset).max().unwrap_or(0);
        let units = remaining.saturating_add(1);
        let until = |index, units| soonest(|wait| self.has_room(state, index, now + wait, units));
        let more = match units {
            _ if admitted => 0,
            _ if units >= cost => wait,
            _ => (0..self.tiers.len()).map(|index| until(index, units)).max().unwrap_or(0),
        };
        Answer { admitted, tier, remaining, wait, reset, more }
    }

    fn empty(&self, now: u64) -> State {
        match self.algorithm {
            Algorithm::SlidingWindow => State::Log(Vec::new()),
            Algorithm::FixedWindow => State::Windows(vec![None; self.tiers.len()]),
            Algorithm::SlidingCounter => State::Counters(vec![(0, 0, 0); self.tiers.len()]),
            Algorithm::TokenBucket => {
                State::Buckets(self.tiers.iter().map(|tier| (now, tier.full())).collect())
            }
            other => unreachable!("{other:?} has no model"),
        }
    }

    /// What was written, as it is read at `now`: but for a log, nothing is from the future.
    fn seen_at(&self, state: &State, now: u64) -> State {
        match state {
            State::Log(_) => state.clone(),
            State::Windows(windows) => State::Windows(
                self.with(windows)
                    .map(|(tier, window)| {
                        let (start, units) = window.as_ref()?;
                        let start = *start.min(&now);
                        (now < start + tier.period).then_some((start, *units))
                    })
                    .collect(),
            ),
            State::Counters(counters) => State::Counters(
                self.with(counters).map(|(tier, counter)| tier.counter_at(*counter, now)).collect(),
            ),
            State::Buckets(buckets) => State::Buckets(
                self.with(buckets)
                    .map(|(tier, bucket)| (now, tier.level_at(*bucket, now)))
                    .collect(),
            ),
        }
    }

    /// Whether the tier has room for these units at `now`, if nothing comes before.
    fn has_room(&self, state: &State, index: usize, now: u64, units: u32) -> bool {
        let tier = self.tiers[index];
        let (units, threshold) = (u128::from(units), u128::from(tier.threshold));
        match state {
            State::Log(log) => {
                let in_window = log.iter().filter(|(at, _)| at + tier.period > now);
                in_window.map(|(_, units)| u128::from(*units)).sum::<u128>() + units <= threshold
            }
            State::Windows(windows) => {
                let open = windows[index].filter(|(start, _)| now < start + tier.period);
                u128::from(open.map_or(0, |(_, units)| units)) + units <= threshold
            }
            State::Counters(counters) => {
                let (window, previous, current) = tier.counter_at(counters[index], now);
                let tick = (threshold * u128::from(tier.period)).div_ceil(1 << 53);
                let ticks = u128::from(tier.period) / tick;
                let left = u128::from((window + 1) * tier.period - now).div_ceil(tick).min(ticks);
                u128::from(previous) * left + (u128::from(current) + units) * ticks
                    <= threshold * ticks
            }
            State::Buckets(buckets) => {
                tier.level_at(buckets[index], now) >= units * u128::from(tier.period)
            }
        }
    }

    fn with_units(&self, state: &State, now: u64, cost: u32) -> State {
        let units = u64::from(cost);
        match state {
            State::Log(log) => {
                let mut log = log.clone();
                // What is over is gone, also if a clock steps back; unless it is much at once.
                if log.iter().map(|(_, units)| *units).sum::<u64>() <= AT_ONCE {
                    let longest = self.tiers.iter().map(|tier| tier.period).max().unwrap();
                    log.retain(|(at, _)| *at + longest > now);
                }
                log.push((now, units));
                log.sort_by_key(|(at, _)| *at);
                // The newest units are kept, as many as the largest threshold.
                let mut room =
                    u64::from(self.tiers.iter().map(|tier| tier.threshold).max().unwrap());
                for (_, units) in log.iter_mut().rev() {
                    *units = room.min(*units);
                    room -= *units;
                }
                log.retain(|(_, units)| *units > 0);
                State::Log(log)
            }
            State::Windows(windows) => {
                let with_units = |(start, held): (u64, u64)| Some((start, held + units));
                State::Windows(
                    windows.iter().map(|open| with_units(open.unwrap_or((now, 0)))).collect(),
                )
            }
            State::Counters(counters) => State::Counters(
                self.with(counters)
                    .map(|(tier, (window, previous, current))| {
                        (*window, *previous, (current + units).min(tier.threshold.into()))
                    })
                    .collect(),
            ),
            State::Buckets(buckets) => State::Buckets(
                self.with(buckets)
                    .map(|(tier, (at, level))| {
                        (*at, level.saturating_sub(u128::from(units) * u128::from(tier.period)))
                    })
                    .collect(),
            ),
        }
    }

    fn with<'a, T>(&'a self, each: &'a [T]) -> impl Iterator<Item = (&'a Tier, &'a T)> {
        self.tiers.iter().zip(each)
    }
}

impl Tier {
    fn full(self) -> u128 {
        u128::from(self.capacity) * u128::from(self.period)
    }

    fn counter_at(self, (window, previous, current): (u64, u64, u64), now: u64) -> (u64, u64, u64) {
        let now = now / self.period;
        if now <= window {
            (now, previous, current)
        } else if now == window + 1 {
            (now, current, 0)
        } else {
            (now, 0, 0)
        }
    }

    fn level_at(self, (at, level): (u64, u128), now: u64) -> u128 {
        let refilled = u128::from(now.saturating_sub(at)) * u128::from(self.threshold);
        (level + refilled).min(self.full())
    }
}

/// Whether the clock has stepped back behind what is written.
fn is_ahead(state: &State, tiers: &[Tier], now: u64) -> bool {
    match state {
        // Mended only where it matters.
        State::Log(_) => false,
        State::Windows(windows) => windows.iter().flatten().any(|(start, _)| *start > now),
        State::Counters(counters) => {
            tiers.iter().zip(counters).any(|(tier, (window, _, _))| window * tier.period > now)
        }
        State::Buckets(buckets) => buckets.iter().any(|(at, _)| *at > now),
    }
}

/// The most units up to `capacity` for which there is room.
fn most(capacity: u32, has_room: impl Fn(u32) -> bool) -> u64 {
    let (mut fits, mut too_many) = (0, u64::from(capacity) + 1);
    while fits + 1 < too_many {
        let middle = u64::midpoint(fits, too_many);
        if has_room(u32::try_from(middle).expect("at most the capacity")) {
            fits = middle;
        } else {
            too_many = middle;
        }
    }
    fits
}

/// The first time from which there is room: once there is, it stays.
fn soonest(has_room: impl Fn(u64) -> bool) -> u64 {
    if has_room(0) {
        return 0;
    }
    let (mut too_soon, mut late) = (0, 1);
    while !has_room(late) {
        (too_soon, late) = (late, late * 2);
    }
    while too_soon + 1 < late {
        let middle = u64::midpoint(too_soon, late);
        if has_room(middle) {
            late = middle;
        } else {
            too_soon = middle;
        }
    }
    late
}
