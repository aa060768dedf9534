use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

fn message(policy: &Policy) -> String {
    policy.validate().expect_err("the policy breaks a rule").to_string()
}

#[test]
fn bounds_are_part_of_what_is_allowed() {
    for (period, threshold) in
        [(Duration::from_millis(1), 1), (Duration::from_secs(366 * 24 * 60 * 60), 1_000_000_000)]
    {
        assert_eq!(Policy::sliding_window("p", period, threshold).validate(), Ok(()));
    }
}

#[test]
fn faults_name_the_policy_and_the_rule() {
    assert_eq!(
        message(&Policy::sliding_window("mail", Duration::ZERO, 1)),
        "invalid rate limit policy `mail`: `period` must be at least 1 ms, but is 0"
    );
    assert_eq!(
        message(&Policy::sliding_window("mail", SECOND, 0)),
        "invalid rate limit policy `mail`: `threshold` must be at least 1"
    );
    assert!(
        message(&Policy::sliding_window("mail", Duration::MAX, 1)).contains("at most 366 days")
    );
    assert!(
        message(&Policy::sliding_window("mail", SECOND, 1_000_000_001))
            .contains("at most 1000000000, but is 1000000001")
    );
}

#[test]
fn tiers_beyond_the_most_are_counted_and_refused() {
    let mut policy = Policy::sliding_window("mail", SECOND, 100);
    for tier in 1..10 {
        policy = policy.tier(SECOND * 5_u32.pow(tier), 100 + tier);
    }
    assert_eq!(policy.tiers().len(), MAX_TIERS);
    assert!(message(&policy).contains("at most 8 tiers"), "{}", message(&policy));
}

#[test]
fn as_many_tiers_as_there_may_be_are_all_decided() {
    let mut policy = Policy::sliding_window("mail", SECOND, 100);
    for tier in 1..MAX_TIERS.try_into().unwrap() {
        policy = policy.tier(SECOND * 5_u32.pow(tier), 100 + tier);
    }
    assert_eq!(policy.tiers().len(), MAX_TIERS);
    assert_eq!(policy.validate(), Ok(()));
}

#[test]
fn with_other_tiers_it_is_as_if_they_had_been_written() {
    let written = Policy::sliding_window("mail", MAX, 90).tier(SECOND, 9).count_rejected();
    let narrow = Policy::sliding_window("mail", SECOND * 2, 5).count_rejected();
    assert_eq!(written.with_tiers(&[Tier::new(SECOND * 2, 5)]), narrow);
    assert_eq!(narrow.with_tiers(&[Tier::new(MAX, 90), Tier::new(SECOND, 9)]), written);
    let bucket = Policy::token_bucket("mail", SECOND, 1).burst(7);
    assert_eq!(
        bucket.with_tiers(&[Tier::new(MAX, 2)]),
        Policy::token_bucket("mail", MAX, 2).burst(7)
    );
}

#[test]
fn counters_and_windows_count_any_threshold() {
    assert_eq!(Policy::sliding_counter("search", MAX, u32::MAX).validate(), Ok(()));
    assert_eq!(Policy::fixed_window("search", MAX, u32::MAX).validate(), Ok(()));
}

#[test]
fn a_burst_belongs_to_one_bucket() {
    let bucket = Policy::token_bucket("p", SECOND, 10);
    assert_eq!(bucket.burst(1).validate(), Ok(()));
    assert!(message(&bucket.burst(0)).ends_with("`burst` must be at least 1"));
    assert!(message(&bucket.tier(MAX, 20).burst(5)).ends_with(
        "`burst` is the size of one bucket; with several tiers each is a bucket of its threshold"
    ));
    assert!(
        message(&Policy::fixed_window("p", SECOND, 10).burst(5))
            .ends_with("`burst` is the size of a `token_bucket`; a `fixed_window` has none")
    );
}

#[test]
fn a_bucket_is_as_large_as_is_counted_exactly() {
    // 366 days have no divisor in common with 11: a token is as many parts as microseconds.
    let odd = Policy::token_bucket("p", MAX, 11);
    assert_eq!(odd.burst(284).validate(), Ok(()));
    assert_eq!(
        message(&odd.burst(285)),
        "invalid rate limit policy `p`: a bucket of 285 tokens cannot be counted exactly at \
         this rate, only up to 284; a threshold that divides the period's microseconds has \
         more room"
    );
    // A token of 2^22 parts, and fewer than 2^53 parts in all.
    let binary = Policy::token_bucket("p", Duration::from_micros(1 << 22), 1);
    assert_eq!(binary.burst((1 << 31) - 1).validate(), Ok(()));
    assert!(binary.burst(1 << 31).validate().is_err());
    assert_eq!(Policy::token_bucket("p", MAX, 100_000).validate(), Ok(()));
    assert_eq!(Policy::token_bucket("p", SECOND, 1_000_000).burst(u32::MAX).validate(), Ok(()));
}

#[test]
fn refused_calls_change_nothing_in_a_fixed_window() {
    assert!(
        message(&Policy::fixed_window("p", SECOND, 1).count_rejected())
            .ends_with("a full window stays full until it ends, refused calls change nothing")
    );
    assert_eq!(Policy::token_bucket("p", SECOND, 1).count_rejected().validate(), Ok(()));
}

#[test]
fn a_cost_has_to_fit_the_burst_and_not_the_rate() {
    let bucket = Policy::token_bucket("p", SECOND, 2).burst(5);
    assert_eq!(bucket.validate_with(Some(5)), Ok(()));
    assert!(bucket.validate_with(Some(6)).unwrap_err().to_string().contains("a burst of 5"));
    assert!(bucket.burst(1).validate_with(Some(2)).is_err());
}

#[test]
fn a_cost_has_to_fit_every_tier() {
    let policy = Policy::sliding_window("mail", SECOND, 2).tier(SECOND * 60, 3);
    assert_eq!(policy.validate_with(Some(2)), Ok(()));
    assert!(policy.validate_with(Some(3)).unwrap_err().to_string().contains("`cost` is 3"));
    assert!(policy.validate_with(Some(0)).unwrap_err().to_string().contains("at least 1"));
}

#[test]
fn a_lease_makes_a_bucket_smaller() {
    let lease = Duration::from_millis(20);
    let window = Policy::sliding_window("p", SECOND, 1_000_000).lease(lease);
    assert_eq!(window.validate(), Ok(()));
    assert!(window.is_one_tier() && window.is_valid_alone());
    assert_eq!(window.get_lease(), Some(lease));
    assert!(!window.limits_as(&window.without_lease()));
    let fixed = Policy::fixed_window("p", SECOND, 1_000).lease(lease);
    assert!(fixed.is_valid_alone() && fixed.is_one_tier());
    assert_eq!(fixed.units_of_lease(), Some(20));

    // 20.2 tokens refill during a lease.
    let bucket = Policy::token_bucket("p", SECOND, 1_010);
    let size = |policy: &Policy| {
        let tier = policy.tiers()[0];
        assert_eq!(policy.bucket(tier), tier.bucket(policy.bucket_size(tier)));
        policy.bucket_size(tier)
    };
    assert_eq!([size(&bucket), size(&bucket.burst(30))], [1_010, 30]);
    assert_eq!([size(&bucket.lease(lease)), size(&bucket.lease(lease).burst(30))], [989, 9]);
    assert!(message(&bucket.burst(21).lease(lease)).contains("at least 22 tokens"));
    let Ok(Err(error)) = bucket.burst(30).lease(lease).validate_call(10, 0) else {
        panic!("nine tokens are left");
    };
    assert_eq!(
        error.to_string(),
        "rate limit `p` never admits 10 units at once: its bucket holds 9 under its lease"
    );
}

#[test]
fn a_lease_is_of_whole_milliseconds_and_at_most_a_tenth_of_a_period() {
    let window = Policy::sliding_counter("p", SECOND, 1_000).tier(MAX, 100_000);
    let leased = |micros| window.lease(Duration::from_micros(micros));
    assert_eq!(leased(1_999).get_lease(), Some(Duration::from_millis(1)));
    assert!(message(&leased(999)).ends_with("`lease` must be at least 1 ms, but is 0"));
    assert_eq!(leased(100_999).validate(), Ok(()));
    assert!(message(&leased(101_000)).contains("a tenth of the shortest period of 1 s"));
    assert!(message(&window.lease(Duration::MAX)).contains("at most a tenth"));
    let rejected = leased(20_000).count_rejected();
    assert!(message(&rejected).contains("`count_rejected` needs the store at each call"));
    let alone = Policy::concurrency_limit("p", 5).lease(SECOND);
    assert!(message(&alone).contains("`lease` needs a window"));
}

#[test]
fn calls_in_flight_have_rules_of_their_own() {
    let upload = Policy::concurrency_limit("upload", 5);
    assert_eq!(upload.validate(), Ok(()));
    assert_eq!(
        message(&Policy::concurrency_limit("upload", 0)),
        "invalid rate limit policy `upload`: `concurrency` must be at least 1"
    );
    assert_eq!(
        message(&upload.count_rejected()),
        "invalid rate limit policy `upload`: `count_rejected` needs a window: a policy of \
         `concurrency` alone has nothing to count"
    );
    assert_eq!(
        message(&upload.concurrency_timeout(Duration::from_millis(99))),
        "invalid rate limit policy `upload`: `concurrency_timeout` must be at least 100 ms and at \
         most 1 d, but is 99 ms"
    );
    let window = Policy::sliding_window("upload", SECOND, 1);
    assert!(message(&window.concurrency_timeout(SECOND)).contains("it needs `concurrency`"));
    assert!(window.is_one_tier() && !window.concurrency(1).is_one_tier());
    assert!(window.concurrency(1).is_surely_valid(1) && !window.concurrency(1).is_surely_valid(2));
    assert!(!window.concurrency(0).is_surely_valid(1));
    assert!(!window.limits_as(&window.concurrency(1)));
    assert_eq!(upload.tier(SECOND, 5).count_rejected().validate(), Ok(()));
}

#[test]
fn a_policy_without_its_blocks_is_as_if_it_had_never_had_any() {
    let bare = Policy::fixed_window("p", SECOND, 5);
    let blocked = bare.block(&[SECOND, 2 * SECOND]);
    assert_eq!(blocked.block(&[]), bare);
    assert_eq!(blocked.block(&[SECOND]), bare.block(&[SECOND]));
}
