//! Both stores follow the model while plans, and overrides of callers, plans and limits, change at random between
//! the calls.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use fastrand::Rng;
use harness::{
    RedisServer,
    model::{Answer, By, Call, Model, Rules},
    schedule::{operations, seed},
};
use ratelimit_runtime::{Decision, Enforcement, Limiter, Override, Plans, Policy, RateLimitError};

use super::{EPOCH, answer};

const HOUR: Duration = Duration::from_secs(3_600);
const LIMIT: &str = "people";
const PLANS: [(&str, &str, u32); 3] =
    [("free", "people@free", 3), ("team", "people@team", 5), ("pro", "people@pro", 8)];
const CALLERS: [&str; 3] = ["alice", "bob", "carol"];
const ENFORCEMENTS: [Enforcement; 3] = [Enforcement::On, Enforcement::DryRun, Enforcement::Off];
/// An override until then is as none.
const PAST: SystemTime = SystemTime::UNIX_EPOCH;

type New = fn(&'static str, Duration, u32) -> Policy;

/// The overrides by the name of a limit, and by the caller of a single one.
type Entries = HashMap<(&'static str, Option<usize>), Override>;

/// Sets an override at random, or removes it.
fn change(limiter: &Limiter, entries: &mut Entries, rng: &mut Rng) {
    let caller = (rng.u8(..4) > 0).then(|| rng.usize(..CALLERS.len()));
    let names = [LIMIT, "*", PLANS[0].1, PLANS[1].1, PLANS[2].1];
    let (overrides, name) = (limiter.overrides(), names[rng.usize(..names.len())]);
    let enforcement = ENFORCEMENTS[rng.usize(..ENFORCEMENTS.len())];
    let numbers = Override::new().threshold(rng.u32(1..10));
    let what = match rng.u8(..10) {
        0 | 1 if caller.is_some() => Override::new().deny(),
        0 | 1 => Override::new().enforcement(enforcement),
        _ if name == "*" && caller.is_none() => Override::new().enforcement(enforcement),
        2 => Override::new().enforcement(enforcement),
        3 => numbers.period(HOUR * rng.u32(6..48)).enforcement(enforcement),
        4 => Override::new().period(HOUR * rng.u32(6..48)),
        5 => numbers.period(HOUR * rng.u32(6..48)),
        6 | 7 => numbers,
        _ => {
            entries.remove(&(name, caller));
            return match caller {
                Some(caller) => overrides.here().remove((name, CALLERS[caller])),
                None => overrides.here().remove(name),
            };
        }
    };
    let what = match rng.u8(..6) {
        0 => what.until(PAST),
        1 => what.until(SystemTime::now() + HOUR),
        _ => what,
    };
    let set = match caller {
        Some(caller) => overrides.here().set((name, CALLERS[caller]), what.clone()),
        None => overrides.here().set(name, what.clone()),
    };
    set.unwrap();
    entries.insert((name, caller), what);
}

/// The enforcement and the numbers of a call in the order of the guide; none if its caller is denied.
fn effective(
    entries: &Entries,
    plan: &'static str,
    caller: usize,
    declared: (Duration, u32),
) -> Option<(Enforcement, (Duration, u32))> {
    let open = |name, caller| entries.get(&(name, caller)).filter(|it| it.until != Some(PAST));
    let mine = || [plan, LIMIT, "*"].into_iter().filter_map(|name| open(name, Some(caller)));
    if mine().find(|it| it.deny || it.enforcement.is_some()).is_some_and(|it| it.deny) {
        return None;
    }
    let of_limits = [open(plan, None), open(LIMIT, None)];
    let chain = || mine().chain(of_limits.into_iter().flatten());
    let own = chain().find_map(|it| it.enforcement).unwrap_or(Enforcement::On);
    let global = open("*", None).and_then(|it| it.enforcement);
    let mut numbers = chain().filter(|it| it.threshold.is_some() || it.period.is_some());
    let numbers = numbers.next().map_or(declared, |it| {
        (it.period.unwrap_or(declared.0), it.threshold.unwrap_or(declared.1))
    });
    Some((global.map_or(own, |global| own.max(global)), numbers))
}

/// Drives a limiter, whose clock goes on by `advance`. It is the model's if the answers are compared with their
/// times.
async fn check(
    limiter: &Limiter,
    make: New,
    (by, is_exact): (By, bool),
    count: usize,
    advance: impl AsyncFn(&mut Rng) -> u64,
) {
    let seed = seed();
    let (mut rng, mut model) = (Rng::with_seed(seed), Model::new(by));
    let (mut entries, mut now) = (Entries::new(), EPOCH);
    let mut plans = Plans::new(LIMIT, PLANS[0].0, make("", HOUR * 24, PLANS[0].2));
    for (name, _, threshold) in &PLANS[1..] {
        plans = plans.plan(name, make("", HOUR * 24, *threshold));
    }
    let [mut admitted, mut refused, mut denied, mut off] = [0; 4];
    for _ in 0..count {
        if rng.u8(..3) == 0 {
            change(limiter, &mut entries, &mut rng);
        }
        now += advance(&mut rng).await;
        let (caller, plan) = (rng.usize(..CALLERS.len()), PLANS[rng.usize(..PLANS.len())]);
        let (policy, cost, record) = (plans.of(plan.0), rng.u32(1..4), rng.u8(..5) > 0);
        if rng.u8(..40) == 0 {
            limiter.reset(policy, CALLERS[caller]).await.unwrap();
            model.reset(caller);
        }
        let decided: Result<Decision, RateLimitError> = if record {
            limiter.check(policy, CALLERS[caller]).cost(cost).await
        } else {
            limiter.peek(policy, CALLERS[caller]).cost(cost).await
        };
        let case =
            || format!("MODEL_SEED={seed}: {make:?} {caller} {plan:?} {cost} {record} {entries:?}");
        let Some((enforcement, numbers)) = effective(&entries, plan.1, caller, (HOUR * 24, plan.2))
        else {
            assert!(matches!(decided, Err(RateLimitError::Denied(_))), "{}: {decided:?}", case());
            denied += 1;
            continue;
        };
        let passes = |decided: &Result<Decision, RateLimitError>| {
            assert!(decided.as_ref().is_ok_and(|it| !it.is_counted()), "{}: {decided:?}", case());
        };
        let is_dry_run = enforcement == Enforcement::DryRun && record;
        if enforcement == Enforcement::Off && record {
            passes(&decided);
            off += 1;
            continue;
        }
        if cost > numbers.1 {
            if is_dry_run {
                passes(&decided);
            } else {
                assert!(
                    matches!(decided, Err(RateLimitError::TooLarge(_))),
                    "{}: {decided:?}",
                    case()
                );
            }
            continue;
        }
        let overridden = make(LIMIT, numbers.0, numbers.1);
        let rules = Rules::new(&overridden, None);
        let is_declared = numbers == (HOUR * 24, plan.2);
        let rules = if is_declared { rules } else { rules.instead_of(&Rules::new(policy, None)) };
        let call = Call { now, cost, record, id: None, permit: 0, max_wait: 0 };
        let (expected, _) = model.decide(&rules, caller, call);
        *if expected.admitted { &mut admitted } else { &mut refused } += 1;
        if !expected.admitted && is_dry_run {
            passes(&decided);
            continue;
        }
        let actual = answer(&overridden, 0, decided);
        if is_exact {
            assert_eq!(actual, Answer { more: 0, ..expected }, "{}", case());
        } else if expected.admitted {
            assert_eq!(
                (actual.admitted, actual.remaining),
                (true, expected.remaining),
                "{}",
                case()
            );
        } else {
            assert!(!actual.admitted, "{}: {actual:?}", case());
        }
    }
    for count_of in [admitted, refused, denied, off] {
        assert!(count_of > count / 200, "{admitted} {refused} {denied} {off} of {count}");
    }
}

const ALGORITHMS: [New; 3] = [Policy::sliding_window, Policy::fixed_window, Policy::token_bucket];

#[tokio::test(start_paused = true)]
async fn people_in_memory_are_decided_as_the_model_does() {
    for make in ALGORITHMS.into_iter().chain([Policy::sliding_counter as New]) {
        let advance = async |rng: &mut Rng| {
            let hours = if rng.u8(..4) == 0 { rng.u32(..8) } else { 0 };
            let pause = HOUR * hours + Duration::from_micros(rng.u64(1..1_000_000_000));
            tokio::time::advance(pause).await;
            u64::try_from(pause.as_micros()).unwrap()
        };
        check(&Limiter::in_memory(), make, (By::Number, true), operations() / 3, advance).await;
    }
}

/// No unit leaves a window of hours, and the time of the server is not known: waits are not compared.
#[tokio::test]
async fn people_on_redis_are_decided_as_the_model_does() {
    let server = RedisServer::start();
    for make in ALGORITHMS {
        let (limiter, count) = (server.limiter().await, operations() / 20);
        check(&limiter, make, (By::Instant, false), count, async |_: &mut Rng| 1_000).await;
    }
}
