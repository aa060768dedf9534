use super::*;

const SECOND: u64 = 1_000_000;

fn found(algorithm: Algorithm, tiers: &[(u64, u64)]) -> Vec<(Argument, PolicyFault)> {
    found_where(algorithm, tiers, false)
}

/// A draft without tiers, which writes no argument.
pub(super) fn draft(algorithm: Algorithm) -> Draft<'static> {
    Draft {
        algorithm,
        tiers: &[],
        burst: Setting::Default,
        cost: None,
        count_rejected: false,
        concurrency: Setting::Default,
        concurrency_timeout: Setting::Default,
        lease: Setting::Default,
        leave: None,
        zone: false,
        block: &[],
    }
}

fn found_where(
    algorithm: Algorithm,
    tiers: &[(u64, u64)],
    count_rejected: bool,
) -> Vec<(Argument, PolicyFault)> {
    let tiers: Vec<_> = tiers
        .iter()
        .map(|&(seconds, threshold)| TierDraft {
            period: Some(seconds * SECOND),
            threshold: Some(threshold),
        })
        .collect();
    violations(&Draft { tiers: &tiers, count_rejected, ..draft(algorithm) })
}

fn dead(algorithm: Algorithm, tiers: &[(u64, u64)]) -> Option<usize> {
    match found(algorithm, tiers)[..] {
        [] => None,
        [(Argument::Tier(index), PolicyFault::DeadTier { .. })] => Some(index),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_tier_is_dead_when_another_is_as_strict_over_its_whole_period() {
    use Algorithm::{FixedWindow, SlidingCounter, SlidingWindow, TokenBucket};
    for &algorithm in Algorithm::ALL {
        assert_eq!(dead(algorithm, &[(60, 1), (3600, 5), (86400, 10)]), None);
        assert_eq!(dead(algorithm, &[(60, 6), (60, 5)]), Some(0));
        let twice = [(Argument::Tier(1), PolicyFault::TierTwice)];
        assert_eq!(found(algorithm, &[(60, 5), (60, 5)]), twice);
    }
    for (algorithm, tiers, expected) in [
        // One a minute is at most 60 an hour: an hourly tier must stay below.
        (SlidingWindow, [(60, 1), (3600, 60)], Some(1)),
        (SlidingWindow, [(60, 1), (3600, 59)], None),
        // As many in a shorter period.
        (SlidingWindow, [(60, 5), (3600, 5)], Some(0)),
        // 61 s are covered by two windows of 60 s.
        (SlidingWindow, [(60, 5), (61, 10)], Some(1)),
        (SlidingWindow, [(60, 5), (61, 9)], None),
        (FixedWindow, [(60, 1), (3600, 60)], None),
        (FixedWindow, [(60, 1), (3600, 61)], Some(1)),
        (SlidingCounter, [(60, 1), (3600, 1000)], None),
        (TokenBucket, [(60, 1), (3600, 60)], Some(1)),
        (TokenBucket, [(60, 1), (3600, 59)], None),
        (TokenBucket, [(1, 10), (60, 5)], Some(0)),
    ] {
        assert_eq!(dead(algorithm, &tiers), expected, "{algorithm:?} {tiers:?}");
    }
}

#[test]
fn a_tier_is_valid_alone_if_and_only_if_no_rule_is_broken() {
    let periods = [0, 999, 1_000, 86_400 * SECOND, 86_401 * SECOND, 366 * 86_400 * SECOND];
    let thresholds = [
        0,
        1,
        99_999,
        100_000,
        100_001,
        104_249,
        104_250,
        1_000_000_000,
        1_000_000_001,
        u64::from(u32::MAX),
    ];
    let bursts = [None, Some(0), Some(1), Some(284), Some(285), Some(u32::MAX)];
    let leases = [None, Some(0), Some(999), Some(1_000), Some(8_640 * SECOND)];
    for &algorithm in Algorithm::ALL.iter().chain([&Algorithm::CalendarWindow]) {
        for period in periods.into_iter().chain([MAX_PERIOD + 1]) {
            for (threshold, burst) in
                thresholds.iter().flat_map(|it| bursts.map(|burst| (*it, burst)))
            {
                for (count_rejected, lease) in
                    [false, true].iter().flat_map(|it| leases.map(|lease| (*it, lease)))
                {
                    let tier = TierDraft { period: Some(period), threshold: Some(threshold) };
                    let draft = Draft {
                        tiers: &[tier],
                        burst: burst
                            .map_or(Setting::Default, |it| Setting::Explicit(Some(it.into()))),
                        cost: Some(1),
                        count_rejected,
                        lease: lease
                            .map_or(Setting::Default, |lease| Setting::Explicit(Some(lease))),
                        ..draft(algorithm)
                    };
                    let tier = (period, threshold);
                    let is_valid = is_valid_alone(algorithm, tier, burst, count_rejected, lease);
                    assert_eq!(is_valid, violations(&draft).is_empty(), "{draft:?}");
                }
            }
        }
    }
}

#[test]
fn a_lease_lasts_a_tenth_of_the_shortest_period_at_most() {
    let tiers = [(60, 60_000), (1, 2_000)].map(|(seconds, threshold)| TierDraft {
        period: Some(seconds * SECOND),
        threshold: Some(threshold),
    });
    let leased = |lease| Draft {
        tiers: &tiers,
        lease: Setting::Explicit(Some(lease)),
        ..draft(Algorithm::SlidingCounter)
    };
    for lease in [1_000, 20_000, 100_000] {
        assert_eq!(violations(&leased(lease)), [], "{lease}");
    }
    for (lease, fault) in [
        (999, PolicyFault::LeaseTooShort { lease: 999 }),
        (100_001, PolicyFault::LeaseTooLong { lease: 100_001, period: SECOND }),
    ] {
        assert_eq!(violations(&leased(lease)), [(Argument::Lease, fault)]);
    }
    // A value that is known only at run time.
    let unknown = Draft { lease: Setting::Explicit(None), ..leased(0) };
    assert_eq!(violations(&unknown), []);
}

#[test]
fn what_needs_the_store_at_each_call_excludes_a_lease() {
    let tier = TierDraft { period: Some(SECOND), threshold: Some(2_000) };
    let leased = Draft {
        tiers: &[tier],
        lease: Setting::Explicit(Some(20_000)),
        ..draft(Algorithm::SlidingCounter)
    };
    let with = |argument| [(Argument::Lease, PolicyFault::LeaseWith { argument })];
    let rejected = Draft { count_rejected: true, ..leased };
    assert_eq!(violations(&rejected), with("count_rejected"));
    let in_flight = Draft { concurrency: Setting::Explicit(Some(5)), ..leased };
    assert_eq!(violations(&in_flight), with("concurrency"));
    let alone = Draft { tiers: &[], ..in_flight };
    let nothing = PolicyFault::NothingToCount { argument: "lease" };
    assert_eq!(violations(&alone), [(Argument::Lease, nothing)]);
}

#[test]
fn a_bucket_under_a_lease_keeps_a_token_beside_those_that_refill() {
    let tiers = [TierDraft { period: Some(SECOND), threshold: Some(101) }];
    // 10.1 tokens refill in 100 ms.
    let leased = |burst, cost| Draft {
        tiers: &tiers,
        burst: Setting::Explicit(Some(burst)),
        cost: Some(cost),
        lease: Setting::Explicit(Some(100_000)),
        ..draft(Algorithm::TokenBucket)
    };
    assert_eq!(refilled((SECOND, 101), 100_000), 11);
    assert_eq!(violations(&leased(12, 1)), []);
    assert_eq!(violations(&leased(20, 9)), []);
    let small = PolicyFault::BucketTooSmall { burst: 11, smallest: 12 };
    assert_eq!(violations(&leased(11, 1)), [(Argument::Lease, small)]);
    let large = PolicyFault::CostOverLeasedBucket { cost: 10, largest: 9 };
    assert_eq!(violations(&leased(20, 10)), [(Argument::Cost, large)]);
    let larger = PolicyFault::CostOverBurst { cost: 21, burst: 20 };
    assert_eq!(violations(&leased(20, 21)), [(Argument::Cost, larger)]);
    let of_threshold = Draft { burst: Setting::Default, ..leased(0, 91) };
    let large = PolicyFault::CostOverLeasedBucket { cost: 91, largest: 90 };
    assert_eq!(violations(&of_threshold), [(Argument::Cost, large)]);
}

#[test]
fn calls_in_flight_need_no_window_and_what_counts_units_needs_one() {
    let alone = Draft {
        concurrency: Setting::Explicit(Some(5)),
        concurrency_timeout: Setting::Explicit(Some(30 * SECOND)),
        ..draft(Algorithm::SlidingWindow)
    };
    assert_eq!(violations(&alone), []);
    assert_eq!(violations(&Draft { cost: Some(1), ..alone }), []);
    let nothing = |argument| PolicyFault::NothingToCount { argument };
    for (draft, fault) in [
        (Draft { burst: Setting::Explicit(None), ..alone }, (Argument::Burst, nothing("burst"))),
        (Draft { cost: Some(2), ..alone }, (Argument::Cost, nothing("cost"))),
        (
            Draft { count_rejected: true, ..alone },
            (Argument::CountRejected, nothing("count_rejected")),
        ),
        (
            Draft { concurrency: Setting::Explicit(Some(0)), ..alone },
            (Argument::Concurrency, PolicyFault::ConcurrencyZero),
        ),
        (
            Draft { concurrency_timeout: Setting::Explicit(Some(99_999)), ..alone },
            (
                Argument::ConcurrencyTimeout,
                PolicyFault::ConcurrencyTimeoutOutOfRange { timeout: 99_999 },
            ),
        ),
        (
            Draft { concurrency: Setting::Default, ..alone },
            (Argument::ConcurrencyTimeout, PolicyFault::ConcurrencyTimeoutWithoutConcurrency),
        ),
    ] {
        assert_eq!(violations(&draft), [fault]);
    }
    let tier = TierDraft { period: Some(SECOND), threshold: Some(5) };
    let both = Draft { tiers: &[tier], cost: Some(2), count_rejected: true, ..alone };
    assert_eq!(violations(&both), []);
}

#[test]
fn refused_calls_that_are_counted_keep_a_longer_tier_alive() {
    let found = |tiers| found_where(Algorithm::SlidingWindow, tiers, true);
    // One a minute is admitted, and any number refused, which fill an hour.
    assert_eq!(found(&[(60, 1), (3600, 60)]), []);
    // Within an hour there are no more than in the hour.
    let dead = [(Argument::Tier(0), PolicyFault::DeadTier { period: 3600 * SECOND, threshold: 5 })];
    assert_eq!(found(&[(60, 5), (3600, 5)]), dead);
    assert_eq!(found(&[(60, 4), (3600, 5)]), []);
}

#[test]
fn every_fault_is_found_in_its_place() {
    let found = found(Algorithm::SlidingWindow, &[(0, 0), (400 * 24 * 3600, 1_000_000_001)]);
    let places: Vec<_> = found.iter().map(|(place, _)| *place).collect();
    assert_eq!(
        places,
        [Argument::Period(0), Argument::Threshold(0), Argument::Period(1), Argument::Threshold(1)]
    );
}

#[test]
fn a_share_is_rounded_up_and_leaves_one_unit_to_use() {
    for (quota, percent, left) in [(100, 20, 20), (3, 1, 1), (3, 66, 2), (3, 67, 3), (1, 0, 0)] {
        assert_eq!(units_left(quota, percent), left);
    }
    assert_eq!(units_left(u32::MAX, 100), u32::MAX);
    let tiers =
        [100, 3].map(|threshold| TierDraft { period: Some(SECOND), threshold: Some(threshold) });
    let all = draft(Algorithm::FixedWindow);
    let leaving = |share, cost| {
        let draft = Draft { tiers: &tiers, leave: Some(share), cost: Some(cost), ..all };
        let found = violations(&draft).into_iter();
        found.filter(|it| it.0 == Argument::Leave).map(|it| it.1).next()
    };
    assert_eq!(leaving(66, 1), None);
    assert_eq!(leaving(67, 1), Some(PolicyFault::LeavesNothing { share: 67, quota: 3 }));
    assert_eq!(leaving(100, 1), Some(PolicyFault::LeaveTooLarge { share: 100 }));
    assert_eq!(leaving(20, 3), Some(PolicyFault::CostOverUsable { cost: 3, usable: 2, quota: 3 }));
}

#[test]
fn a_window_of_the_calendar_is_one_tier_of_a_unit() {
    let found = |tiers: &[(u64, u64)]| found(Algorithm::CalendarWindow, tiers);
    for days in [1, 7, 31] {
        assert_eq!(found(&[(days * 86_400, 1_000_000)]), []);
    }
    for seconds in [60, 86_399, 2 * 86_400, 30 * 86_400] {
        assert_eq!(found(&[(seconds, 1)]), [(Argument::Period(0), PolicyFault::PeriodOffCalendar)]);
    }
    let several = (Argument::Tier(1), PolicyFault::CalendarWith { argument: "tier" });
    assert_eq!(found(&[(86_400, 1), (7 * 86_400, 100)]), [several]);
    for algorithm in Algorithm::ALL {
        let tier = TierDraft { period: Some(86_400 * SECOND), threshold: Some(1) };
        let zoned = Draft { zone: true, tiers: &[tier], ..draft(*algorithm) };
        assert_eq!(violations(&zoned), [(Argument::Zone, PolicyFault::ZoneWithoutCalendar)]);
    }
}

#[test]
fn blocks_grow_within_their_bounds() {
    const DAY: u64 = 86_400 * SECOND;
    let tier = TierDraft { period: Some(60 * SECOND), threshold: Some(5) };
    let tiers = [tier; MAX_TIERS];
    let blocked = |block: &[u64]| {
        let block: Vec<_> = block.iter().copied().map(Some).collect();
        violations(&Draft { tiers: &[tier], block: &block, ..draft(Algorithm::FixedWindow) })
    };
    let at = |index, fault| [(Argument::Block(index), fault)];
    for valid in [&[][..], &[1_000], &[SECOND, 2 * SECOND, DAY, 31 * DAY]] {
        assert_eq!(blocked(valid), [], "{valid:?}");
    }
    assert_eq!(blocked(&[999]), at(0, PolicyFault::BlockOutOfRange { length: 999 }));
    let length = 31 * DAY + 1;
    assert_eq!(blocked(&[SECOND, length]), at(1, PolicyFault::BlockOutOfRange { length }));
    assert_eq!(blocked(&[SECOND, DAY, DAY]), at(2, PolicyFault::BlockDoesNotGrow));
    assert_eq!(blocked(&[1, 2, 3, 4, 5].map(|it| it * SECOND)), at(4, PolicyFault::TooManyBlocks));
    let all = Draft { tiers: &tiers, block: &[None], ..draft(Algorithm::TokenBucket) };
    assert!(violations(&all).contains(&(Argument::Tier(7), PolicyFault::TooManyTiers)));
    let leased = Draft { tiers: &[tier], lease: Setting::Explicit(Some(SECOND)), ..all };
    assert_eq!(
        violations(&leased),
        [(Argument::Lease, PolicyFault::LeaseWith { argument: "block" })]
    );
    let nothing = Draft { tiers: &[], concurrency: Setting::Explicit(Some(5)), ..all };
    assert_eq!(
        violations(&nothing),
        [(Argument::Block(0), PolicyFault::NothingToCount { argument: "block" })]
    );
}
