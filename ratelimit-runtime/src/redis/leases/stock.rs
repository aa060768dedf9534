//! The units that this process has on lease for one key: without a clock, a lock or a task.

use super::demand::Demand;
use crate::{
    policy::{Policy, StateKind},
    redis::script::{EndedLease, Grant, LeaseMark, LeaseRequest},
    request::{Charged, DecidedBy, EntryMark, Mark, Outcome},
    time::{Micros, Timestamp},
};

/// The share of a threshold that one lease may have: one in this many.
const SHARES: u32 = 8;

/// The most units of an entry of a weighted log.
const MAX_UNITS: u32 = 99_999_999;

/// Leases in a row that are over when they arrive. After them, calls are decided by Redis.
const MAX_LATE: u32 = 2;

/// Units taken ahead, and what is known without them.
#[derive(Debug)]
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
    demand: Demand,
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
    mark: LeaseMark,
    /// The mark of the calls that take its units.
    charged: Charged,
    sent: Timestamp,
    ends: Timestamp,
    last_use: Timestamp,
    units: u32,
    left: u32,
    /// The tier with the fewest units left on Redis, and their number.
    tier: u8,
    remaining: u32,
    /// The instants from which there are more of them, and all.
    more_at: Timestamp,
    full_at: Timestamp,
}

/// Redis has no more units: until `ask_at` a call is refused without asking.
#[derive(Clone, Copy, Debug)]
struct KnownRefusal {
    tier: u8,
    ask_at: Timestamp,
    /// The instant from which a call may be admitted, as the call reads it.
    until: Timestamp,
    full_at: Timestamp,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StockAnswer {
    Decided(Outcome),
    /// The next lease decides.
    Wait,
    /// Redis decides.
    Direct,
}

/// The next step of a key's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseStep {
    Sleep(Micros),
    Exchange(LeaseRequest),
    End,
}

/// The instants when a command was sent, rather too early than too late, and when its reply came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) sent: Timestamp,
    pub(super) answered: Timestamp,
}

impl Stock {
    /// Returns the stock of a key that has none yet. Returns nothing if the policy has no lease, or its
    /// leases would be of one unit.
    pub(super) fn new(policy: &Policy, ttl: Micros, now: Timestamp) -> Option<Self> {
        let length = policy.lease_micros()?;
        let of_tier = |tier| policy.bucket_size(tier);
        let narrowest = match policy.state() {
            StateKind::TokenBucket => policy.tiers().iter().map(|tier| of_tier(*tier)).min(),
            _ => policy.tiers().iter().map(|tier| tier.threshold()).min(),
        };
        let most = (narrowest? / SHARES).min(MAX_UNITS);
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
            return StockAnswer::Decided(lease.take(cost, now));
        }
        self.take_none(cost, now)
    }

    #[inline(never)]
    fn take_none(&mut self, cost: u32, now: Timestamp) -> StockAnswer {
        if cost > self.most || self.is_closing {
            return StockAnswer::Direct;
        }
        let idle = self.lease.is_some_and(|lease| lease.left > 0 && now >= lease.ends);
        match self.refusal {
            Some(refusal) if now < refusal.ask_at && !idle => {
                // More units than one may be refused for longer.
                if cost > 1 {
                    return StockAnswer::Direct;
                }
                self.demand.add(cost);
                StockAnswer::Decided(refusal.outcome(now))
            }
            _ => StockAnswer::Wait,
        }
    }

    /// Counts a call that waits.
    pub(super) fn add_demand(&mut self, cost: u32) {
        self.demand.add(cost);
    }

    /// Returns the next step, where calls of so many units wait.
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
        // A direct call costs no more than a lease for one.
        let is_idle = pending == 0 && self.demand.asked() <= 1;
        if self.is_closing || is_idle {
            self.is_closing = true;
            let returned = self.lease.take().and_then(|lease| self.returned(lease));
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
        let returned = self.lease.take().and_then(|lease| self.returned(lease));
        LeaseStep::Exchange(LeaseRequest { want, demand: demand.max(1), returned })
    }

    /// Returns what of an ended lease is to be given back. A log is also told when it was used last.
    fn returned(&self, lease: UnitsInUse) -> Option<EndedLease> {
        let UnitsInUse { mark, units, left, last_use, sent, .. } = lease;
        let is_told = left > 0 || self.state == StateKind::WeightedWindow;
        is_told.then(|| EndedLease { mark, units, used: units - left, age: last_use - sent })
    }

    /// Receives the reply to an exchange. Returns `false` if no lease can be used: Redis decides from now
    /// on.
    pub(super) fn receive(&mut self, grant: Grant, at: Sent) -> bool {
        let Some(UnderWay { want, is_stale }) = self.exchange.take() else { return false };
        let Sent { sent, answered } = at;
        let full_at = answered + grant.reset;
        // Units from before a reset are not used.
        let ends = if is_stale { sent } else { sent + grant.allowed };
        if grant.units > 0 {
            self.lease = Some(UnitsInUse {
                mark: grant.mark,
                charged: charged(self.state, grant.mark),
                sent,
                ends,
                last_use: sent,
                units: grant.units,
                left: grant.units,
                tier: grant.tier,
                remaining: grant.remaining,
                more_at: answered + grant.wait,
                full_at,
            });
        }
        self.late = if grant.units > 0 && answered >= ends { self.late + 1 } else { 0 };
        if grant.units < want && !is_stale {
            let wait = if grant.remaining == 0 { grant.wait } else { Micros::ZERO };
            let ask_at = sent + self.length.max(wait.min(self.ttl));
            let until = ask_at.max(answered + wait);
            self.refusal = Some(KnownRefusal { tier: grant.tier, ask_at, until, full_at });
        }
        self.late < MAX_LATE
    }

    /// Gives units of a call back to the lease that they were taken from, while it lasts.
    pub(super) fn give_back(&mut self, mark: Mark, units: u32, now: Timestamp) {
        if let Some(lease) = &mut self.lease
            && mark == lease.mark_of_calls()
            && now < lease.ends
        {
            lease.left = lease.left.saturating_add(units).min(lease.units);
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
        let reset = self.full_at - now;
        Outcome {
            admitted: true,
            tier: self.tier,
            remaining: self.remaining.saturating_add(self.left),
            wait: self.more_at - now,
            more: Micros::ZERO,
            reset,
            lasts: reset,
            mark: self.mark_of_calls(),
            decided_by: DecidedBy::Lease,
            is_busy: false,
        }
    }

    #[inline]
    fn mark_of_calls(&self) -> Mark {
        Mark { at: self.mark.at, charged: self.charged }
    }
}

impl KnownRefusal {
    fn outcome(self, now: Timestamp) -> Outcome {
        let Self { tier, until, full_at, .. } = self;
        let refused = Outcome::refused(until - now, full_at.max(until) - now);
        Outcome { tier, decided_by: DecidedBy::Lease, ..refused }
    }
}

/// Returns the mark of a call's charge: an entry of others, to which units can be added.
fn charged(state: StateKind, mark: LeaseMark) -> Charged {
    match state {
        StateKind::WeightedWindow => Charged::Entry(EntryMark::new(0, mark.birth, true)),
        _ => Charged::Generation(mark.birth),
    }
}
