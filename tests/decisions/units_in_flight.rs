//! Calls of several units that hold a permit agree with a count, whatever is settled, released and reset in
//! between: a call takes both or neither.

use std::time::Duration;

use fastrand::Rng;
use harness::{on_each_store, schedule::seed};
use ratelimit_runtime::{Decision, Limiter, Policy, RateLimitError};

const HOUR: Duration = Duration::from_secs(3_600);
const CALLERS: [&str; 2] = ["alice", "bob"];
const STEPS: usize = 1_200;

const ONE_TIER: Policy = Policy::sliding_window("units", HOUR, 40).concurrency(3);
const TWO_TIERS: Policy = ONE_TIER.named("tiers").tier(HOUR.saturating_mul(3), 70);

/// One caller's log of units, each with its time and its call, and the number of calls in flight.
#[derive(Default)]
struct Model {
    log: Vec<(Duration, usize, u32)>,
    in_flight: u32,
}

impl Model {
    /// Returns the units that are left; below 0 is a debt.
    fn left(&self, policy: &Policy, now: Duration) -> i64 {
        let left = policy.tiers().iter().map(|tier| {
            let live = self.log.iter().filter(|(at, ..)| *at + tier.period() > now);
            i64::from(tier.threshold()) - live.map(|(.., units)| i64::from(*units)).sum::<i64>()
        });
        left.min().expect("a tier")
    }

    /// Settles a call. What exceeds its cost counts from now on, also if its own units have left.
    fn settle(&mut self, now: Duration, call: &Call, to: u32) {
        if let Some((.., units)) = self.log.iter_mut().find(|(_, of, _)| *of == call.number) {
            *units = to.min(*units);
        }
        self.log.push((now, usize::MAX, to.saturating_sub(call.decision.cost())));
    }
}

struct Call {
    caller: usize,
    number: usize,
    decision: Decision,
    /// `true` if a settle changes nothing: it is settled already, or its log was reset.
    is_closed: bool,
}

/// The number of times that each case was tested.
#[derive(Debug, Default)]
struct Counts {
    admitted: u32,
    busy: u32,
    exceeded: u32,
    lowered: u32,
    raised: u32,
    in_debt: u32,
}

async fn assert_agrees(limiter: &Limiter, policy: &Policy, time_passes: bool) {
    let seed = seed();
    let mut rng = Rng::with_seed(seed);
    let mut models: [Model; 2] = Default::default();
    let (mut calls, mut counts, mut now) = (Vec::<Call>::new(), Counts::default(), Duration::ZERO);
    let most = policy.get_concurrency().expect("permits");
    for number in 0..STEPS {
        if time_passes {
            let pause = Duration::from_micros(rng.u64(..HOUR.as_secs() * 100_000));
            tokio::time::advance(pause).await;
            now += pause;
        }
        let caller = rng.usize(..CALLERS.len());
        let model = &mut models[caller];
        let own: Vec<_> = (0..calls.len()).filter(|index| calls[*index].caller == caller).collect();
        match (rng.u32(..20), own.is_empty()) {
            (0..5, false) => {
                drop(calls.swap_remove(rng.choice(own).expect("a call")));
                model.in_flight -= 1;
                limiter.flush().await.expect("the release");
            }
            (5..10, false) => {
                let call = &mut calls[rng.choice(own).expect("a call")];
                let cost = call.decision.cost();
                let to = if rng.bool() { rng.u32(..=cost) } else { cost + rng.u32(..30) };
                limiter.settle(&call.decision, to).await.expect("the settle");
                if !std::mem::replace(&mut call.is_closed, true) {
                    model.settle(now, call, to);
                    counts.lowered += u32::from(to < cost);
                    counts.raised += u32::from(to > cost);
                }
            }
            (10, _) if !time_passes => {
                limiter.reset(policy, CALLERS[caller]).await.expect("the reset");
                model.log.clear();
                for index in own {
                    calls[index].is_closed = true;
                }
            }
            _ => {
                let cost = rng.u32(1..12);
                let left = model.left(policy, now);
                let has_room = i64::from(cost) <= left;
                match limiter.check(policy, CALLERS[caller]).cost(cost).await {
                    Ok(decision) => {
                        assert!(model.in_flight < most && has_room, "{seed} {number}");
                        assert!(decision.has_permit() && decision.is_counted(), "{seed} {number}");
                        model.in_flight += 1;
                        model.log.push((now, number, cost));
                        calls.push(Call { caller, number, decision, is_closed: false });
                        counts.admitted += 1;
                    }
                    Err(RateLimitError::Busy(_)) => {
                        assert_eq!(model.in_flight, most, "{seed} {number}");
                        counts.busy += 1;
                    }
                    Err(RateLimitError::Exceeded(_)) => {
                        assert!(!has_room, "{seed} {number}: {left} left");
                        counts.exceeded += 1;
                        counts.in_debt += u32::from(left < 0);
                    }
                    Err(error) => panic!("{seed} {number}: {error}"),
                }
            }
        }
        let looked = limiter.peek(policy, CALLERS[caller]).cost(0).await.expect("a peek");
        let left = models[caller].left(policy, now).max(0);
        assert_eq!(i64::from(looked.remaining()), left, "{seed} {number}");
        assert!(calls.iter().all(|call| call.decision.has_permit()), "{seed} {number}");
    }
    let Counts { admitted, busy, exceeded, lowered, raised, in_debt } = counts;
    let least = [admitted, busy, exceeded, lowered, raised, in_debt].into_iter().min();
    assert!(least > Some(5), "{seed}: {counts:?}");
}

#[tokio::test]
async fn units_and_permits_agree_with_a_count() {
    on_each_store(async |limiter| {
        for policy in [&ONE_TIER, &TWO_TIERS] {
            assert_agrees(limiter, policy, false).await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn units_leave_the_window_while_permits_are_held() {
    for policy in [&ONE_TIER, &TWO_TIERS] {
        assert_agrees(&Limiter::in_memory(), policy, true).await;
    }
}
