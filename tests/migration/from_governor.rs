//! `governor` decides each call as our `token_bucket` does, to the microsecond.

use std::{num::NonZeroU32, time::Duration};

use governor::{Quota, RateLimiter, clock::Clock, clock::FakeRelativeClock};
use ratelimit_runtime::{Limiter, Policy, RateLimitError};
use tokio::time;

/// `Quota::with_period(2 s).allow_burst(5)`.
const OURS: Policy = Policy::token_bucket("governor", Duration::from_secs(2), 1).burst(5);

#[tokio::test(start_paused = true)]
async fn each_call_and_each_wait_is_the_same() {
    let clock = FakeRelativeClock::default();
    let five = NonZeroU32::new(5).unwrap();
    let quota = Quota::with_period(Duration::from_secs(2)).unwrap().allow_burst(five);
    let (theirs, ours) =
        (RateLimiter::direct_with_clock(quota, clock.clone()), Limiter::in_memory());
    let (mut admitted, mut refused, mut never) = (0, 0, 0);
    for step in 0..2_000_u64 {
        let units =
            NonZeroU32::new(u32::try_from(1 + (step * step + step / 6) % 6).unwrap()).unwrap();
        let decided = ours.check(&OURS, "alice").cost(units.get()).await;
        match (theirs.check_n(units), decided) {
            (Ok(Ok(())), Ok(_)) => admitted += 1,
            (Ok(Err(until)), Err(RateLimitError::Exceeded(it))) => {
                assert_eq!(it.retry_after(), until.wait_time_from(clock.now()), "step {step}");
                refused += 1;
            }
            // More than the burst is an error of its own in both.
            (Err(_), Err(RateLimitError::TooLarge(_))) => never += 1,
            (theirs, ours) => panic!("step {step}, {units} units: {theirs:?}, {ours:?}"),
        }
        let pause = Duration::from_micros(step * step * 7_919 % 4_000_000);
        clock.advance(pause);
        time::advance(pause).await;
    }
    assert!(admitted > 300 && refused > 300 && never > 100, "{admitted}, {refused}, {never}");
}
