//! The rules of tiers and the text of periods against brute force, for all small numbers.

use super::{tests::draft, *};
use crate::period;

const SECOND: u64 = 1_000_000;

/// Returns the most units that a sliding window of `units` in `length` seconds admits in `span`
/// seconds: the best of all sequences, a count for each second.
fn most(length: u64, units: u64, span: u64) -> u64 {
    fn extend(length: u64, units: u64, span: u64, admitted: &mut Vec<u64>) -> u64 {
        if admitted.len() as u64 == span {
            return admitted.iter().sum();
        }
        let within = usize::try_from(length - 1).expect("a short window");
        let used: u64 = admitted.iter().rev().take(within).sum();
        let mut best = 0;
        for next in 0..=units - used {
            admitted.push(next);
            best = best.max(extend(length, units, span, admitted));
            admitted.pop();
        }
        best
    }
    extend(length, units, span, &mut Vec::new())
}

fn is_dead(tiers: [(u64, u64); 2]) -> bool {
    let tiers = tiers.map(|(seconds, threshold)| TierDraft {
        period: Some(seconds * SECOND),
        threshold: Some(threshold),
    });
    let draft = Draft { tiers: &tiers, ..draft(Algorithm::SlidingWindow) };
    let is_it = |found: &(Argument, PolicyFault)| {
        matches!(found, (Argument::Tier(0), PolicyFault::DeadTier { .. }))
    };
    violations(&draft).iter().any(is_it)
}

#[test]
fn a_sliding_tier_is_dead_if_no_sequence_of_calls_exceeds_it() {
    for (length, units, span) in (1..=6).flat_map(|length| {
        (1..=2).flat_map(move |units| (1..=6).map(move |it| (length, units, it)))
    }) {
        let most = most(length, units, span);
        for threshold in (1..=12).filter(|threshold| (span, *threshold) != (length, units)) {
            let tiers = [(span, threshold), (length, units)];
            assert_eq!(is_dead(tiers), most <= threshold, "{tiers:?}: at most {most}");
        }
    }
}

#[test]
fn the_text_of_a_period_is_the_sum_of_its_parts() {
    let units: [(&str, u64); 5] = [
        ("ms", 1_000),
        ("s", SECOND),
        ("m", 60 * SECOND),
        ("h", 3_600 * SECOND),
        ("d", 86_400 * SECOND),
    ];
    let numbers = (0..200).chain([999, 1_000, u64::from(u32::MAX), u64::MAX / 1_000, u64::MAX]);
    for (unit, micros) in units {
        for number in numbers.clone() {
            let exact = u128::from(number) * u128::from(micros);
            let expected = u64::try_from(exact).unwrap_or(u64::MAX);
            assert_eq!(period::parse(&format!("{number}{unit}")), Ok(expected));
            for (other, further) in units {
                let sum = exact.min(u64::MAX.into()) + 7 * u128::from(further);
                let expected = u64::try_from(sum).unwrap_or(u64::MAX);
                assert_eq!(period::parse(&format!("{number}{unit} 7{other}")), Ok(expected));
            }
        }
    }
}
