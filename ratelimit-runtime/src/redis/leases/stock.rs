//! The units that this process has on lease for one key: without a clock, a lock or a task.

use super::demand::Demand;
use crate::{
    policy::{Policy, StateKind, Tier},
    redis::{
        deny_cache::RoundTrip,
        script::{EndedLease, Grant, LeaseRequest},
    },
    request::{Charged, DecidedBy, EntryMark, Mark, Outcome},
    time::{Micros, Timestamp},
};

/// The share of a threshold that one lease may have: one in this many.
const SHARES: u32 = 8;

/// The most units of an entry of a log.
const MAX_UNITS: u32 = 99_999_999;

/// Leases in a row that are over when they arrive. After them, calls are decided by Redis.
const MAX_LATE: u32 = 2;

/// The units on lease of a key, or a refusal while there are none.
#[derive(Clone, Debug)]
pub(super) struct Stock {
    state: StateKind,
    length: Micros,
    /// The most units of one lease.
    most: u32,
    /// The longest time for which a refusal of Redis is repeated.
    ttl: Micros,
    lease: Option<UnitsInUse>,
    refusal: Option<KnownRefusal>,
    exchange: Option<UnderWay>,
    /// `true` if the lease is given back, and none is taken any more.
    is_closing: bool,
    pub(super) demand: Demand,
    late: u32,
}

/// An exchange without a reply yet.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    want: u32,
    /// `true` if the caller was reset meanwhile.
    is_stale: bool,
}

/// Units that may be used until `ends`.
#[derive(Clone, Copy, Debug)]
struct UnitsInUse {
    grant: Grant,
    /// The mark of the calls that take its units.
    mark_of_calls: Mark,
    sent: Timestamp,
    ends: Timestamp,
    last_use: Timestamp,
    left: u32,
    /// The instant from which Redis has more units left, and the one from which it has all.
    more_at: Timestamp,
    full_at: Timestamp,
}

/// A refusal of Redis, which has no more units. Calls before `ask_at` are refused without a
/// command.
#[derive(Clone, Copy, Debug)]
struct KnownRefusal {
    tier: u8,
    ask_at: Timestamp,
    /// The instant from which a call may be admitted, by which its wait is computed.
    until: Timestamp,
    full_at: Timestamp,
}

/// The outcome of a call, or a wait for the next lease, which decides it. None if Redis is to
/// decide it directly.
pub(super) type StockAnswer<W = ()> = Option<Result<Outcome, W>>;

/// The next step of a key's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseStep {
    Sleep(Micros),
    Exchange(LeaseRequest),
    End,
}

impl Stock {
    /// Returns the stock of a key that has none yet. Returns nothing if the policy has no lease, or
    /// its leases would be of one unit.
    pub(super) fn new(policy: &Policy, ttl: Micros, now: Timestamp) -> Option<Self> {
        let length = policy.lease_micros()?;
        let of_tier = |tier: &Tier| policy.burst_of(*tier).unwrap_or(tier.threshold());
        let narrowest = policy.tiers().iter().map(of_tier).min()?;
        let most = (narrowest / SHARES).min(MAX_UNITS);
        (most > 1).then(|| Self {
            state: policy.state(),
            length,
            most,
            ttl,
            lease: None,
            refusal: None,
            exchange: None,
            is_closing: false,
            demand: Demand::new(length, now),
            late: 0,
        })
    }

    /// Decides a call, if units or a refusal are at hand. Otherwise nothing is done.
    #[inline]
    pub(super) fn take(&mut self, cost: u32, now: Timestamp) -> StockAnswer {
        if let Some(lease) = &mut self.lease
            && cost <= lease.left
            && now < lease.ends
        {
            self.demand.add(cost);
            return Some(Ok(lease.take(cost, now)));
        }
        self.take_none(cost, now)
    }

    #[inline(never)]
    fn take_none(&mut self, cost: u32, now: Timestamp) -> StockAnswer {
        if cost > self.most || self.is_closing {
            return None;
        }
        // Units that nobody used go back by an exchange, after which the refusal may be over.
        let idle = self.lease.is_some_and(|lease| lease.left > 0 && now >= lease.ends);
        match self.refusal {
            Some(refusal) if now < refusal.ask_at && !idle => {
                // More units than one may be refused for longer.
                if cost > 1 {
                    return None;
                }
                self.demand.add(cost);
                Some(Ok(refusal.outcome(now)))
            }
            _ => Some(Err(())),
        }
    }

    /// Returns the next step, while calls of this many units wait.
    pub(super) fn step(&mut self, pending: u64, now: Timestamp) -> LeaseStep {
        let due = match (&self.lease, self.refusal) {
            _ if self.is_closing || pending > 0 => now,
            (Some(lease), _) if lease.left > 0 => lease.ends,
            (_, Some(refusal)) => refusal.ask_at,
            (Some(lease), None) => lease.ends,
            (None, None) => now,
        };
        if now < due {
            return LeaseStep::Sleep(due - now);
        }
        let returned = self.lease.take().and_then(|lease| self.returned(lease));
        // A direct call costs no more than a lease for one.
        let is_idle = pending == 0 && self.demand.asked <= 1;
        if self.is_closing || is_idle {
            self.is_closing = true;
            return returned.map_or(LeaseStep::End, |returned| {
                LeaseStep::Exchange(LeaseRequest { want: 0, demand: 1, returned: Some(returned) })
            });
        }
        let demand = self.demand.end(now);
        let most = u64::from(self.most);
        let want = (pending + demand + demand / 5).clamp(1, most);
        let want = u32::try_from(want).unwrap_or(self.most);
        self.refusal = None;
        self.exchange = Some(UnderWay { want, is_stale: false });
        LeaseStep::Exchange(LeaseRequest { want, demand: demand.max(1), returned })
    }

    /// Returns the part of an ended lease that is given back. A log also receives the time of its
    /// last use.
    fn returned(&self, lease: UnitsInUse) -> Option<EndedLease> {
        let UnitsInUse { grant: Grant { mark, units, .. }, left, last_use, sent, .. } = lease;
        let is_returned = left > 0 || self.state == StateKind::SlidingWindow;
        is_returned.then(|| EndedLease { mark, units, used: units - left, age: last_use - sent })
    }

    /// Receives the reply to an exchange. Returns `false` if no lease can be used: Redis decides
    /// from now on, and the next step gives this one back.
    pub(super) fn receive(&mut self, grant: Grant, at: RoundTrip) -> bool {
        let Some(UnderWay { want, is_stale }) = self.exchange.take() else { return false };
        let RoundTrip { sent, answered } = at;
        let full_at = answered + grant.reset;
        // Units from before a reset are not used.
        let ends = if is_stale { sent } else { sent + grant.allowed };
        if grant.units > 0 {
            let charged = match self.state {
                // An entry of others, to which units can be added.
                StateKind::SlidingWindow => {
                    Charged::Entry(EntryMark::new(0, grant.mark.birth, true))
                }
                _ => Charged::Generation(grant.mark.birth),
            };
            self.lease = Some(UnitsInUse {
                grant,
                mark_of_calls: Mark { at: grant.mark.at, charged },
                sent,
                ends,
                last_use: sent,
                left: grant.units,
                more_at: answered + grant.wait,
                full_at,
            });
        }
        self.late = if grant.units > 0 && answered >= ends { self.late + 1 } else { 0 };
        if grant.units < want && !is_stale {
            let wait = if grant.remaining == 0 { grant.wait } else { Micros::ZERO };
            // Not before the end of the wait, from when it was known: such a question is refused
            // again.
            let ask_at = (sent + self.length).max(answered + wait.min(self.ttl));
            let until = ask_at.max(answered + wait);
            self.refusal = Some(KnownRefusal { tier: grant.tier, ask_at, until, full_at });
        }
        self.is_closing |= self.late >= MAX_LATE;
        self.late < MAX_LATE
    }

    /// Gives units of a call back to the lease that they were taken from, while it lasts.
    pub(super) fn give_back(&mut self, mark: Mark, units: u32, now: Timestamp) {
        if let Some(lease) = &mut self.lease
            && mark == lease.mark_of_calls
            && now < lease.ends
        {
            lease.left = lease.left.saturating_add(units).min(lease.grant.units);
        }
    }

    /// Ends the lease: the caller was reset.
    pub(super) fn invalidate(&mut self) {
        self.refusal = None;
        if let Some(lease) = &mut self.lease {
            lease.ends = lease.sent;
        }
        if let Some(exchange) = &mut self.exchange {
            exchange.is_stale = true;
        }
    }

    /// Lets the next step give the lease back for good.
    pub(super) fn close(&mut self) {
        self.is_closing = true;
    }
}

impl UnitsInUse {
    #[inline]
    fn take(&mut self, cost: u32, now: Timestamp) -> Outcome {
        self.left -= cost;
        self.last_use = self.last_use.max(now);
        let remaining = self.grant.remaining.saturating_add(self.left);
        let (wait, reset) = (self.more_at - now, self.full_at - now);
        let admitted = Outcome::admitted(remaining, wait, reset, self.mark_of_calls);
        Outcome { tier: self.grant.tier, decided_by: DecidedBy::Lease, ..admitted }
    }
}

impl KnownRefusal {
    fn outcome(self, now: Timestamp) -> Outcome {
        let Self { tier, until, full_at, .. } = self;
        let refused = Outcome::refused(until - now, full_at.max(until) - now);
        Outcome { tier, decided_by: DecidedBy::Lease, ..refused }
    }
}
