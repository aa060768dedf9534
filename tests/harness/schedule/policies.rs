//! The policies of random schedules.

use std::time::Duration;

use ratelimit_runtime::{Algorithm, Policy};

use super::super::model::Rules;

const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const LONGEST: u64 = 366 * DAY;

/// An algorithm, as it is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Policies of an algorithm.
    Plain(Algorithm),
    /// Sliding windows whose calls take one unit.
    SingleUnits,
    /// Calls in flight, without a window.
    InFlight,
}

impl Kind {
    /// Returns `true` if calls can have request ids.
    pub fn has_names(self) -> bool {
        matches!(self, Self::Plain(Algorithm::SlidingWindow))
    }
}

/// A policy to test.
#[derive(Clone, Debug)]
pub struct Case {
    /// The policy.
    pub policy: Policy,
    /// The burst that it was built with.
    pub burst: Option<u32>,
    /// The share that calls leave, in percent.
    pub leave: u32,
    /// `true` if all calls take one unit.
    pub is_single: bool,
}

impl Case {
    fn new(policy: Policy, burst: Option<u32>) -> Self {
        Self { policy, burst, leave: 0, is_single: false }
    }

    /// The numbers of the policy.
    pub(super) fn rules(&self) -> Rules {
        Rules::new(&self.policy, self.burst).leaving(self.leave)
    }
}

/// The policies of an algorithm's test.
pub fn cases(kind: Kind) -> Vec<Case> {
    let mut tiers = Vec::new();
    for period in [MILLISECOND, MINUTE, LONGEST] {
        for threshold in [1, 2, 3, 100, 100_000] {
            tiers.push(vec![(period, threshold)]);
        }
    }
    tiers.push(vec![(MINUTE, 1), (HOUR, 5), (DAY, 10)]);
    tiers.push(vec![(SECOND, 3), (MINUTE, 100)]);
    tiers.push(vec![(7 * MILLISECOND + 1, 3), (MILLISECOND, 2), (LONGEST, 100)]);
    if kind == Kind::Plain(Algorithm::SlidingCounter) {
        for threshold in [284, 285, 1_000_000_000, u32::MAX] {
            tiers.push(vec![(LONGEST, threshold)]);
        }
        tiers.push(vec![(DAY, 1_000_000), (MILLISECOND, u32::MAX)]);
    }
    if kind == Kind::Plain(Algorithm::SlidingWindow) {
        tiers.push(vec![(MINUTE, 1_000_000_000)]);
        tiers.push(vec![(MINUTE, 1_000_000), (HOUR, 20_000_000)]);
    }
    if kind == Kind::Plain(Algorithm::TokenBucket) {
        tiers.push(vec![(SECOND, 7)]);
        tiers.push(vec![(1_009, 4_000)]);
    }

    let mut cases = Vec::new();
    for tiers in tiers {
        let policy = with_tiers(kind, &tiers);
        cases.push(Case::new(policy, None));
        if kind != Kind::Plain(Algorithm::FixedWindow) {
            cases.push(Case::new(policy.count_rejected(), None));
        }
        if kind == Kind::Plain(Algorithm::TokenBucket) && tiers.len() == 1 {
            for burst in [1, 10, 284] {
                cases.push(Case::new(policy.burst(burst), Some(burst)));
            }
        }
    }
    for case in &mut cases {
        case.is_single = kind == Kind::SingleUnits;
        case.policy.validate().expect("a policy that obeys the rules");
    }
    cases
}

/// Policies that take turns on one key, as in a deploy that changes them.
pub fn changes(kind: Kind) -> Vec<Vec<Case>> {
    let mut changes: Vec<Vec<Vec<(u64, u32)>>> = vec![
        vec![vec![(MINUTE, 10)], vec![(SECOND, 10)]],
        vec![vec![(MINUTE, 10)], vec![(MINUTE + SECOND, 10)]],
        vec![vec![(HOUR, 100)], vec![(MINUTE, 5)]],
        vec![vec![(MINUTE, 5)], vec![(MINUTE, 50)], vec![(MINUTE, 700)]],
        vec![
            vec![(MINUTE, 5), (HOUR, 20)],
            vec![(HOUR, 20)],
            vec![(HOUR, 20), (MINUTE, 5)],
            vec![(SECOND, 2), (MINUTE, 5), (HOUR, 20)],
        ],
        vec![vec![(SECOND, 3)], vec![(7 * MILLISECOND + 1, 2), (MINUTE, 30)], vec![(DAY, 1_000)]],
        (1..=12).map(|n| vec![(n * n * SECOND, 9)]).collect(),
    ];
    if kind != Kind::SingleUnits {
        changes.push(vec![vec![(DAY, 1_000_000)], vec![(DAY, 100)], vec![(LONGEST, 100)]]);
    }
    let case = |tiers: &Vec<(u64, u32)>| Case::new(with_tiers(kind, tiers), None);
    let plain: Vec<Vec<_>> = changes.iter().map(|all| all.iter().map(case).collect()).collect();
    let mut changes = plain.clone();
    if kind != Kind::Plain(Algorithm::FixedWindow) {
        let penal = |case: &Case| Case::new(case.policy.count_rejected(), case.burst);
        changes.extend(plain.iter().map(|all| all.iter().map(penal).collect()));
    }
    if kind == Kind::Plain(Algorithm::TokenBucket) {
        let policy = with_tiers(kind, &[(MINUTE, 10)]);
        let case = |burst| Case::new(policy.burst(burst), Some(burst));
        changes.push([1, 10, 100].map(case).to_vec());
    }
    for case in changes.iter_mut().flatten() {
        case.is_single = kind == Kind::SingleUnits;
        case.policy.validate().expect("a policy that obeys the rules");
    }
    changes
}

/// Policies of calls in flight that take turns on one key; one after the other with another number.
pub fn in_flight(kind: Kind) -> Vec<Vec<Case>> {
    let alone = |calls| Case::new(Policy::concurrency_limit("model", calls), None);
    if kind == Kind::InFlight {
        return [&[1][..], &[2], &[3, 1, 5]]
            .map(|numbers| numbers.iter().copied().map(alone).collect())
            .to_vec();
    }
    let numbers = [2, 1, 4];
    let mut changes = changes(kind);
    for case in changes.iter_mut().flat_map(|all| all.iter_mut().zip(numbers.into_iter().cycle())) {
        let (case, calls) = case;
        case.policy = case.policy.concurrency(calls);
        case.policy.validate().expect("a policy that obeys the rules");
    }
    changes
}

/// One policy on one key, of which some calls leave a share.
pub fn leaving(kind: Kind) -> Vec<Vec<Case>> {
    let mut policies: Vec<_> = if kind == Kind::InFlight {
        [2, 10].map(|calls| (Policy::concurrency_limit("model", calls), None)).to_vec()
    } else {
        let tiers: [&[(u64, u32)]; 4] = [
            &[(MINUTE, 2)],
            &[(MINUTE, 10)],
            &[(SECOND, 3), (MINUTE, 100)],
            &[(MINUTE, 5), (HOUR, 20), (DAY, 100)],
        ];
        tiers.map(|tiers| (with_tiers(kind, tiers), None)).to_vec()
    };
    if kind == Kind::Plain(Algorithm::TokenBucket) {
        let policy = with_tiers(kind, &[(MINUTE, 10)]);
        policies.extend([4, 50].map(|burst| (policy.burst(burst), Some(burst))));
    }
    if kind != Kind::InFlight {
        policies.push((with_tiers(kind, &[(MINUTE, 10)]).concurrency(4), None));
    }
    let case = |(policy, burst)| {
        let is_single = kind == Kind::SingleUnits;
        [0, 20, 50].map(|leave| Case { leave, is_single, ..Case::new(policy, burst) }).to_vec()
    };
    policies.into_iter().map(case).collect()
}

/// Policies with blocks, alone or taking turns on one key, one of them with calls in flight.
pub fn blocking(kind: Kind) -> Vec<Vec<Case>> {
    if kind == Kind::InFlight {
        return Vec::new();
    }
    let blocked = |tiers: &[(u64, u32)], lengths: &[u64]| {
        let lengths: Vec<_> = lengths.iter().map(|it| Duration::from_micros(*it)).collect();
        Case::new(with_tiers(kind, tiers).block(&lengths), None)
    };
    let short = blocked(&[(SECOND, 2)], &[2 * SECOND, 10 * SECOND, MINUTE]);
    let mut in_flight = short.clone();
    in_flight.policy = short.policy.concurrency(2);
    let mut all = vec![
        vec![blocked(&[(MINUTE, 3)], &[MILLISECOND])],
        vec![blocked(&[(SECOND, 3), (MINUTE, 20)], &[SECOND, 3 * SECOND, MINUTE, HOUR])],
        vec![blocked(&[(MINUTE, 3)], &[SECOND, 31 * DAY])],
        vec![in_flight],
        // The lengths change with a deploy.
        vec![
            short,
            blocked(&[(SECOND, 2)], &[SECOND]),
            Case::new(with_tiers(kind, &[(SECOND, 2)]), None),
        ],
    ];
    if kind != Kind::Plain(Algorithm::FixedWindow) {
        let mut penal = all[0].clone();
        penal[0].policy = penal[0].policy.count_rejected();
        all.push(penal);
    }
    for case in all.iter_mut().flatten() {
        case.is_single = kind == Kind::SingleUnits;
        case.policy.validate().expect("a policy that obeys the rules");
    }
    all
}

fn with_tiers(kind: Kind, tiers: &[(u64, u32)]) -> Policy {
    let (period, threshold) = tiers[0];
    let period = Duration::from_micros(period);
    let first = match kind {
        Kind::Plain(algorithm) => Policy::new("model", algorithm, period, threshold),
        Kind::SingleUnits => Policy::sliding_window("model", period, threshold),
        Kind::InFlight => unreachable!("without a window"),
    };
    tiers[1..].iter().fold(first, |policy, (period, threshold)| {
        policy.tier(Duration::from_micros(*period), *threshold)
    })
}
