//! The stock of a key at given instants.

use std::time::Duration;

use super::{keys::WAYS, *};
use crate::{
    policy::Policy,
    redis::script::{EndedLease, LeaseMark, LeaseRequest},
    request::{DecidedBy, Mark},
};

const SECOND: Duration = Duration::from_secs(1);
const LENGTH: Micros = Micros::new(20_000);
const TTL: Micros = Micros::new(1_000_000);

fn sliding() -> Policy {
    Policy::sliding_window("p", SECOND, 800).lease(LENGTH.into())
}

fn at(micros: u64) -> Timestamp {
    Timestamp::new(1_000_000 + micros)
}

fn mark(id: u64) -> LeaseMark {
    LeaseMark { at: Timestamp::new(9_000 + id), birth: 7, id }
}

fn grant(units: u32, remaining: u32, wait: u64) -> Grant {
    let (wait, reset) = (Micros::new(wait), Micros::new(1_020_000));
    Grant { units, allowed: LENGTH, tier: 0, remaining, wait, reset, mark: mark(u64::from(units)) }
}

/// A stock that has asked for its first lease, for calls of so many units.
fn asking(pending: u64) -> (Stock, LeaseRequest) {
    let mut stock = Stock::new(&sliding(), TTL, at(0)).unwrap();
    assert_eq!(stock.take(1, at(0)), Some(Err(())));
    stock.demand.add(4);
    let LeaseStep::Exchange(request) = stock.step(pending, at(0)) else { panic!("it asks") };
    (stock, request)
}

/// A stock with so many units, asked for at 0 and received at 1 ms.
fn stocked(grant: Grant) -> Stock {
    let (mut stock, _) = asking(4);
    assert!(stock.receive(grant, RoundTrip { sent: at(0), answered: at(1_000) }));
    stock
}

fn outcome(taken: StockAnswer) -> Outcome {
    taken.unwrap().unwrap()
}

#[test]
fn the_first_lease_is_for_those_that_wait_and_their_like() {
    let (mut stock, request) = asking(4);
    // Four units in no time are at most 16 in a lease, and a fifth more.
    assert_eq!(request, LeaseRequest { want: 4 + 16 + 3, demand: 16, returned: None });
    assert_eq!(stock.take(1, at(500)), Some(Err(())));
    // More than an eighth of the threshold is no lease.
    assert_eq!(stock.take(101, at(500)), None);
    let small = Policy::sliding_window("p", SECOND, 15).lease(LENGTH.into());
    assert!(Stock::new(&small, TTL, at(0)).is_none());
    assert!(Stock::new(&Policy::sliding_window("p", SECOND, 800), TTL, at(0)).is_none());
}

#[test]
fn units_are_used_until_they_are_gone_or_their_lease_has_ended() {
    let mut stock = stocked(grant(23, 700, 500_000));
    let first = outcome(stock.take(3, at(1_500)));
    assert!(first.admitted && first.decided_by == DecidedBy::Lease);
    assert_eq!((first.remaining, first.wait), (720, Micros::new(499_500)));
    assert_eq!(stock.take(21, at(2_000)), Some(Err(())));
    assert!(outcome(stock.take(1, at(19_999))).admitted);
    assert_eq!(stock.take(1, at(20_000)), Some(Err(())));
    let LeaseStep::Exchange(request) = stock.step(1, at(20_000)) else { panic!("it asks") };
    let returned = EndedLease { mark: mark(23), units: 23, used: 4, age: Micros::new(19_999) };
    assert_eq!(request.returned, Some(returned));
    // While it asks, the old lease is not used.
    assert_eq!(stock.take(1, at(20_001)), Some(Err(())));
}

#[test]
fn a_refusal_is_repeated_until_the_wait_is_over_and_for_a_lease_at_least() {
    for (wait, ask_at) in [(5_000, 20_000), (300_000, 301_000), (40_000_000, 1_001_000)] {
        let mut stock = stocked(grant(2, 0, wait));
        assert!(outcome(stock.take(2, at(1_100))).admitted);
        let refused = outcome(stock.take(1, at(1_200)));
        assert!(!refused.admitted && refused.decided_by == DecidedBy::Lease);
        // The wait is counted from the answer: neither a call nor the next question is too early.
        assert_eq!(refused.wait, Micros::new((wait + 1_000).max(ask_at) - 1_200));
        assert_eq!(stock.take(2, at(1_200)), None);
        assert_eq!(stock.step(0, at(1_200)), LeaseStep::Sleep(Micros::new(ask_at - 1_200)));
        assert!(!outcome(stock.take(1, at(ask_at - 1))).admitted);
        assert_eq!(stock.take(1, at(ask_at)), Some(Err(())));
    }
    // What others may have is refused for a lease.
    let mut stock = stocked(grant(2, 90, 300_000));
    stock.take(2, at(1_100));
    assert_eq!(outcome(stock.take(1, at(1_200))).wait, Micros::new(18_800));
    // Units that nobody has used are given back when their lease ends.
    let mut stock = stocked(grant(2, 0, 300_000));
    assert!(outcome(stock.take(1, at(1_100))).admitted);
    assert_eq!(stock.take(1, at(20_000)), Some(Err(())));
    assert!(matches!(stock.step(1, at(20_000)), LeaseStep::Exchange(_)));
}

#[test]
fn a_lease_that_few_calls_use_is_the_last() {
    let mut stock = stocked(grant(23, 700, 500_000));
    assert_eq!(stock.step(0, at(1_000)), LeaseStep::Sleep(Micros::new(19_000)));
    assert!(outcome(stock.take(1, at(1_500))).admitted);
    let returned = EndedLease { mark: mark(23), units: 23, used: 1, age: Micros::new(1_500) };
    let request = LeaseRequest { want: 0, demand: 1, returned: Some(returned) };
    assert_eq!(stock.step(0, at(20_000)), LeaseStep::Exchange(request));
    assert_eq!(stock.take(1, at(20_001)), None);
    assert_eq!(stock.step(0, at(20_002)), LeaseStep::End);
}

#[test]
fn a_reset_ends_the_lease_and_the_one_under_way() {
    let mut stock = stocked(grant(23, 700, 500_000));
    stock.invalidate();
    assert_eq!(stock.take(1, at(1_100)), Some(Err(())));
    let LeaseStep::Exchange(request) = stock.step(1, at(1_100)) else { panic!("it asks") };
    assert_eq!(request.returned.unwrap().used, 0);
    stock.invalidate();
    assert!(stock.receive(grant(5, 0, 9), RoundTrip { sent: at(1_100), answered: at(2_000) }));
    // The units may be from before the reset. They go back.
    assert_eq!(stock.take(1, at(2_000)), Some(Err(())));
    let LeaseStep::Exchange(request) = stock.step(1, at(2_000)) else { panic!("it asks") };
    assert_eq!(
        request.returned.unwrap(),
        EndedLease { mark: mark(5), units: 5, used: 0, age: Micros::ZERO }
    );
}

#[test]
fn units_go_back_to_the_lease_that_they_are_of_while_it_lasts() {
    let mut stock = stocked(grant(2, 0, 300_000));
    let charge = outcome(stock.take(2, at(1_100))).mark;
    assert!(!outcome(stock.take(1, at(1_200))).admitted);
    stock.give_back(Mark { at: Timestamp::new(1), ..charge }, 2, at(1_300));
    assert!(!outcome(stock.take(1, at(1_400))).admitted);
    stock.give_back(charge, 1, at(1_500));
    assert!(outcome(stock.take(1, at(1_600))).admitted);
    stock.give_back(charge, 9, at(1_700));
    assert!(outcome(stock.take(2, at(1_800))).admitted);
    stock.give_back(charge, 2, at(20_000));
    assert_eq!(stock.step(0, at(20_000)), LeaseStep::Sleep(Micros::new(281_000)));
}

#[test]
fn leases_that_end_on_their_way_are_given_up() {
    let (mut stock, _) = asking(4);
    assert!(stock.receive(grant(9, 0, 9), RoundTrip { sent: at(0), answered: at(20_000) }));
    assert!(matches!(stock.step(4, at(20_000)), LeaseStep::Exchange(_)));
    assert!(!stock.receive(grant(9, 0, 9), RoundTrip { sent: at(20_000), answered: at(40_000) }));
    // The last one goes back, too.
    let returned = EndedLease { mark: mark(9), units: 9, used: 0, age: Micros::ZERO };
    let request = LeaseRequest { want: 0, demand: 1, returned: Some(returned) };
    assert_eq!(stock.step(4, at(40_000)), LeaseStep::Exchange(request));
    assert_eq!(stock.take(1, at(40_001)), None);
    assert_eq!(stock.step(4, at(40_002)), LeaseStep::End);
}

#[test]
fn a_key_is_hot_after_some_calls_within_a_lease() {
    let policy = sliding();
    let leases = Leases::new(RedisStore::without_a_server(), SECOND);
    let request = Request::new(&policy, Op::Take, 1);
    let key = KeyRef::new(&policy, &b"/alice"[..]);
    let is_direct = |now| leases.ask(key, request, true, at(now)).is_none();
    assert!([0, 9_000, 19_000, 20_000, 21_000, 22_000].map(is_direct).iter().all(|it| *it));
    let Some(Err(waiting)) = leases.ask(key, request, true, at(23_000)) else {
        panic!("the fourth one within a lease heats the key")
    };
    assert!(waiting.is_first);
    let signals = Arc::clone(&waiting.signals);
    assert!(leases.take(key, request).is_none());
    // A dropped call is waited for no longer.
    let Some(Err(other)) = leases.ask(key, request, true, at(23_100)) else { panic!("it waits") };
    assert_eq!(waiting.pending.load(Ordering::Relaxed), 2);
    drop(other);
    assert_eq!(waiting.pending.load(Ordering::Relaxed), 1);
    let hash = leases.hasher.lookup(key).hash;
    assert!(matches!(leases.step(hash, &signals, at(23_200)), LeaseStep::Exchange(_)));
    // A failure keeps it cold for a while.
    leases.cool(hash, &signals, at(23_300) + HOLD_OFF);
    let failed = 23_300 + HOLD_OFF.get();
    assert!((0..9).all(|number| is_direct(failed - 10 + number)));
    assert!((0..3).all(|number| is_direct(failed + number)) && !is_direct(failed + 3));
}

#[test]
fn keys_beyond_the_bound_stay_cold() {
    let policy = sliding();
    let leases = Leases::new(RedisStore::without_a_server(), SECOND);
    let request = Request::new(&policy, Op::Take, 1);
    let callers: Vec<_> = (0..4_000).map(|number| format!("/{number}")).collect();
    let mut hot = 0;
    for caller in &callers {
        let key = KeyRef::new(&policy, caller.as_bytes());
        let heats = |_| matches!(leases.ask(key, request, true, at(0)), Some(Err(_)));
        hot += usize::from((0..4).any(heats));
    }
    assert!(hot > SETS * WAYS / 2 && hot <= SETS * WAYS, "{hot}");
}
