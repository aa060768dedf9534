//! Random calls to a store behind a deny cache, compared with the answers of the store alone.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::advance;

use super::{DenyCache, RoundTrip, steps::RefusalSteps};
use crate::{
    caller::Caller,
    key::{Key, KeyRef},
    memory::MemoryStore,
    policy::Policy,
    request::{DecidedBy, Mark, Op, Outcome, Request, Settle},
    time::{Micros, Timestamp},
};

const TTL: Duration = Duration::from_secs(1);
/// The longest round trip.
const LATENCY: Duration = Duration::from_millis(40);
const PERIOD: Duration = Duration::from_secs(20);
const OPERATIONS: usize = 20_000;

/// One caller's limit on a store that several processes share.
struct World {
    store: MemoryStore,
    cache: DenyCache,
    policies: Vec<Policy>,
    flights: Vec<Flight>,
    /// The admitted calls, with the store's marks of them.
    charged: Vec<(Call, Mark)>,
    /// The last instant at which a change, and not time alone, freed units.
    freed: Option<Timestamp>,
    rng: Rng,
    figures: Figures,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    policy: Policy,
    cost: u32,
}

impl Call {
    fn request(&self, op: Op) -> Request<'_> {
        let policy = &self.policy;
        Request::new(policy, op, self.cost)
    }
}

/// A call on its way to the store and back.
struct Flight {
    call: Call,
    sent: Timestamp,
    outcome: Option<Outcome>,
}

#[derive(Debug, Default)]
struct Figures {
    repeated: usize,
    sent: usize,
    stale: usize,
    /// Stale although the change was long ago: while a call revalidated.
    late: usize,
}

impl World {
    fn new(policies: Vec<Policy>, seed: u64) -> Self {
        Self {
            store: MemoryStore::new(100, usize::MAX),
            cache: DenyCache::new(8, TTL),
            policies,
            flights: Vec::new(),
            charged: Vec::new(),
            freed: None,
            rng: Rng::with_seed(seed),
            figures: Figures::default(),
        }
    }

    fn key(&self) -> Key {
        Key::compose("", KeyRef::new(&self.policies[0], Caller::from("alice").parts()))
    }

    fn draw(&mut self) -> Call {
        let policy = self.policies[self.rng.usize(..self.policies.len())];
        let most = policy.tiers().iter().map(|tier| tier.threshold()).min().unwrap();
        let most = [1, most / 3, most][self.rng.usize(..3)].max(1);
        Call { policy, cost: self.rng.u32(1..=most) }
    }

    fn decide(&mut self, call: &Call) -> Outcome {
        let outcome = self.store.decide(self.key().as_key_ref(), call.request(Op::Take)).unwrap();
        if outcome.admitted {
            self.charged.push((*call, outcome.mark));
            let is_comparable =
                |other: &Policy| RefusalSteps::new(other).is_comparable(&call.policy);
            if !self.policies.iter().all(is_comparable) {
                self.freed = Some(self.store.clock().now());
            }
        }
        outcome
    }

    /// A call of this process: refused by the deny cache, or sent to the store.
    fn call(&mut self) {
        let (call, now, key) = (self.draw(), self.store.clock().now(), self.key());
        let request = call.request(Op::Take);
        let Some(found) = self.cache.get(key.as_key_ref(), request, Micros::ZERO, true, || now)
        else {
            self.figures.sent += 1;
            self.flights.push(Flight { call, sent: now, outcome: None });
            return;
        };
        self.figures.repeated += 1;
        let truth = self.store.decide(key.as_key_ref(), call.request(Op::Peek)).unwrap();
        let is_exact = !truth.admitted && found.wait <= truth.wait && found.reset <= truth.reset;
        // A change by another process is seen at the next revalidation.
        let is_recent = self.freed.is_some_and(|at| now <= at + TTL + LATENCY);
        let is_revalidating = self.freed.is_some() && !self.flights.is_empty();
        assert!(is_exact || is_recent || is_revalidating, "{call:?}: {found:?}, but {truth:?}");
        assert!(
            !found.admitted
                && found.decided_by == DecidedBy::DenyCache
                && found.wait > Micros::ZERO
        );
        assert!(found.remaining < call.cost);
        self.figures.stale += usize::from(!is_exact);
        self.figures.late += usize::from(!is_exact && !is_recent);
    }

    /// A call under way reaches the store, or a reply under way arrives.
    fn proceed(&mut self) {
        if self.flights.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.flights.len());
        let flight = self.flights.swap_remove(at);
        if flight.outcome.is_some() {
            self.land(flight);
        } else {
            let outcome = Some(self.decide(&flight.call));
            self.flights.push(Flight { outcome, ..flight });
        }
    }

    fn land(&mut self, Flight { call, sent, outcome }: Flight) {
        let outcome = outcome.unwrap_or_else(|| self.decide(&call));
        let trip = RoundTrip { sent, answered: self.store.clock().now() };
        self.cache.insert(self.key().as_key_ref(), call.request(Op::Take), outcome, trip);
    }

    fn land_all(&mut self, is_due: impl Fn(&Flight) -> bool) {
        while let Some(at) = self.flights.iter().position(&is_due) {
            let flight = self.flights.swap_remove(at);
            self.land(flight);
        }
    }

    /// A reset or a refund by another process, or by this one, which then invalidates.
    fn free(&mut self, is_own: bool) {
        let (key, now) = (self.key(), self.store.clock().now());
        if is_own {
            self.cache.invalidate(key.as_key_ref(), now);
        } else {
            self.freed = Some(now);
        }
        if self.rng.bool() {
            self.store.reset(key.as_key_ref());
            self.charged.clear();
        } else if !self.charged.is_empty() {
            let (call, mark) = self.charged.swap_remove(self.rng.usize(..self.charged.len()));
            let settle = Settle::of_one_tier(&call.policy, call.cost, 0, mark);
            self.store.settle(key.as_key_ref(), &settle);
        }
        if is_own {
            self.cache.invalidate(key.as_key_ref(), now);
        }
    }

    async fn run(mut self) -> Figures {
        for _ in 0..OPERATIONS {
            let now = self.store.clock().now();
            self.land_all(|it| it.sent + LATENCY <= now);
            match self.rng.u32(..1_000) {
                0..600 => self.call(),
                600..840 => self.proceed(),
                840..860 => {
                    let call = self.draw();
                    self.decide(&call);
                }
                860..862 => self.free(false),
                862..864 => self.free(true),
                864..866 => {
                    self.land_all(|_| true);
                    advance(Duration::from_micros(self.rng.u64(..8_000_000))).await;
                }
                _ => advance(Duration::from_micros(self.rng.u64(..10_000))).await,
            }
        }
        self.figures
    }
}

async fn compare(policies: Vec<Policy>) {
    let seed = fastrand::u64(..);
    println!("seed {seed}: {policies:?}");
    let figures = World::new(policies, seed).run().await;
    println!("{figures:?}");
    assert!(figures.repeated > OPERATIONS / 10, "{figures:?}");
    assert!(figures.stale < figures.repeated / 2, "{figures:?}");
    assert!(figures.late < figures.repeated / 50, "{figures:?}");
}

#[tokio::test(start_paused = true)]
async fn only_refusals_that_the_store_would_give_are_repeated() {
    let of: [fn(&'static str, Duration, u32) -> Policy; 4] = [
        Policy::sliding_window,
        Policy::sliding_counter,
        Policy::fixed_window,
        Policy::token_bucket,
    ];
    for of in of {
        for threshold in [1, 10, 100] {
            compare(vec![of("p", PERIOD, threshold)]).await;
        }
        compare(vec![of("p", PERIOD, 10).tier(10 * PERIOD, 30)]).await;
        compare(vec![of("p", PERIOD, 30), of("p", PERIOD, 40), of("p", PERIOD, 20)]).await;
        compare(vec![of("p", PERIOD, 30), of("p", 2 * PERIOD, 40)]).await;
        let blocks = [TTL / 2, PERIOD / 2, 2 * PERIOD];
        compare(vec![of("p", PERIOD, 10).block(&blocks)]).await;
        let whole = of("p", PERIOD, 30);
        compare(vec![whole, whole.leaving(20), whole.leaving(50)]).await;
    }
}
