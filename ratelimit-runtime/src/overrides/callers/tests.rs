use std::time::Duration;

use super::*;
use crate::{
    Enforcement, Policy, RateLimitError,
    overrides::{Effective, OverrideError, Overrides, Shown},
};

const POLICY: Policy = Policy::fixed_window("limit", Duration::from_secs(60), 1);
const ENFORCEMENTS: [Option<Enforcement>; 4] =
    [None, Some(Enforcement::On), Some(Enforcement::DryRun), Some(Enforcement::Off)];

fn handle() -> Overrides {
    Overrides::none(Shown::default())
}

/// Returns each override that a caller or a limit may have, with these numbers.
fn each(threshold: u32, is_of_caller: bool) -> Vec<Option<Override>> {
    let mut each = vec![None];
    for numbers in [Override::new(), Override::new().threshold(threshold)] {
        let with = |enforcement| Override { enforcement, ..numbers.clone() };
        each.extend(ENFORCEMENTS.map(|enforcement| Some(with(enforcement))));
    }
    let past = SystemTime::UNIX_EPOCH;
    if is_of_caller {
        let future = SystemTime::now() + Duration::from_secs(60);
        let deny = Override::new().deny();
        each.extend([deny.clone(), deny.clone().until(future), deny.until(past)].map(Some));
    }
    each.push(Some(Override::new().threshold(threshold).until(past)));
    each
}

/// The order as the documentation has it: the threshold, and the enforcement or none for a caller
/// that is shut out.
fn expected(
    callers: [&Option<Override>; 2],
    limit: Option<&Override>,
    global: Option<Enforcement>,
    declared: Enforcement,
) -> (u32, Option<Enforcement>) {
    let is_open = |it: &&Override| it.until != Some(SystemTime::UNIX_EPOCH);
    let mine = || callers.into_iter().flatten().filter(is_open);
    if mine().find(|it| it.deny || it.enforcement.is_some()).is_some_and(|it| it.deny) {
        return (1, None);
    }
    let chain = || mine().chain(limit.filter(is_open));
    let enforcement = chain().find_map(|it| it.enforcement).unwrap_or(declared);
    let threshold = chain().find_map(|it| it.threshold).unwrap_or(1);
    (threshold, Some(global.map_or(enforcement, |global| enforcement.max(global))))
}

#[test]
fn every_pair_of_overrides_is_decided_in_the_order_of_the_documentation() {
    let (overrides, alice) = (handle(), Caller::from("alice"));
    let mut count = 0;
    for mine in each(10, true) {
        overrides.here().remove(("limit", &alice));
        if let Some(mine) = &mine {
            overrides.here().set(("limit", &alice), mine.clone()).unwrap();
        }
        for of_all in each(20, true) {
            overrides.here().remove(("*", &alice));
            if let Some(of_all) = &of_all {
                overrides.here().set(("*", &alice), of_all.clone()).unwrap();
            }
            for limit in each(30, false) {
                overrides.here().remove("limit");
                if let Some(limit) = &limit {
                    overrides.here().set("limit", limit.clone()).unwrap();
                }
                for (global, declared) in ENFORCEMENTS
                    .iter()
                    .flat_map(|it| [(*it, Enforcement::On), (*it, Enforcement::DryRun)])
                {
                    overrides.here().remove("*");
                    if let Some(global) = global {
                        overrides.here().set("*", global).unwrap();
                    }
                    let now = overrides.effective(&POLICY, &alice, declared);
                    let is_denied = now.answer().is_some();
                    let enforcement = (!is_denied).then_some(now.enforcement);
                    let threshold = now.policy().tiers()[0].threshold();
                    let expected = expected([&mine, &of_all], limit.as_ref(), global, declared);
                    let case = (&mine, &of_all, &limit, global, declared);
                    assert_eq!((threshold, enforcement), expected, "{case:?}");
                    // Another caller sees nothing of it.
                    let bob = overrides.effective(&POLICY, &Caller::from("bob"), declared);
                    assert!(bob.answer().is_none() && bob.policy().tiers()[0].threshold() % 30 < 2);
                    count += 1;
                }
            }
        }
    }
    assert_eq!(count, 13 * 13 * 10 * 8);
}

fn denial(now: &Effective<'_>) -> Option<Duration> {
    match now.answer() {
        Some(RateLimitError::Denied(denied)) => denied.retry_after(),
        _ => panic!("the caller is shut out"),
    }
}

#[test]
fn an_override_ends_by_the_clock_of_the_server() {
    let (overrides, alice) = (handle(), Caller::from("alice"));
    let in_an_hour = SystemTime::now() + Duration::from_secs(3_600);
    overrides.here().set(("limit", &alice), Override::new().deny().until(in_an_hour)).unwrap();
    let now = || overrides.effective(&POLICY, &alice, Enforcement::On);
    let wait = denial(&now()).unwrap();
    assert!(wait <= Duration::from_secs(3_600) && wait > Duration::from_secs(3_500), "{wait:?}");
    assert_eq!(overrides.list_for("limit").len(), 1);
    #[cfg(feature = "overrides")]
    {
        use crate::overrides::{OverrideSource, layer::WrittenPlace};

        overrides.set_server_time(SystemTime::now() + Duration::from_secs(3_000));
        let wait = denial(&now()).unwrap();
        assert!(wait <= Duration::from_secs(600) && wait > Duration::from_secs(500), "{wait:?}");
        overrides.set_server_time(in_an_hour + Duration::from_secs(1));
        assert!(now().is_declared() && overrides.list_for("limit").is_empty());
        // The program's own is dropped at the next change.
        overrides.here().set("*", Enforcement::On).unwrap();
        overrides.set_server_time(SystemTime::now());
        assert!(now().is_declared() && overrides.list_for("limit").is_empty());

        // One that is written down elsewhere counts again if the clock is set back, as that of a
        // limit does.
        let ends = |what: Override| Some(what.until(in_an_hour));
        let place = overrides.written(("limit", &alice));
        overrides.change(OverrideSource::Redis, |layer| {
            layer.set(place.clone(), ends(Override::new().deny()));
            layer.set(WrittenPlace::of_limit("limit"), ends(Override::new().threshold(9)));
        });
        let bob = || overrides.effective(&POLICY, &Caller::from("bob"), Enforcement::On);
        for (time, is_open) in [(in_an_hour, false), (SystemTime::now(), true), (in_an_hour, false)]
        {
            overrides.set_server_time(time);
            overrides
                .here()
                .set("*", if is_open { Enforcement::Off } else { Enforcement::On })
                .unwrap();
            assert_eq!(now().answer().is_some(), is_open);
            assert_eq!(bob().policy().tiers()[0].threshold(), if is_open { 9 } else { 1 });
        }
        // Its removal is also that of one that has ended.
        overrides.change(OverrideSource::Redis, |layer| layer.set(place, None));
        overrides.set_server_time(SystemTime::now());
        assert!(now().answer().is_none() && overrides.get("limit").is_some());
    }
}

#[test]
fn a_digest_stands_for_its_caller_under_the_same_secret_alone() {
    let of = |secret: &str| Identities::new(Some(secret.into()));
    let (alice, bob) = (Caller::from("alice"), Caller::from("bob"));
    let (identities, same, other) = (of("secret"), of("secret"), of("another"));
    let text = identities.text(&alice);
    assert!(text.starts_with("/%keyed-") && !text.contains("alice"), "{text}");
    assert!(text.ends_with(&key::caller_digest("secret", alice.parts())));
    assert_eq!(identities.text(&Caller::from_parts(text.as_bytes())), text);
    assert!(same.text(&alice) == text && other.text(&alice) != text);
    let table = |identities: Identities| {
        let mut table = CallerTable::new(Arc::new(identities));
        table.replace("limit", &text, [Override::new().deny()].iter());
        table
    };
    let table = [table(same), table(other), table(Identities::default())];
    let finds = |caller| {
        table.each_ref().map(|it| it.find([None, Some(POLICY.full_name())], caller)[1].is_some())
    };
    assert_eq!((finds(&alice), finds(&bob)), ([true, false, false], [false; 3]));
}

#[test]
fn debug_shows_no_caller() {
    let overrides = handle();
    overrides.here().set(("limit", "alice"), Override::new().deny()).unwrap();
    let layers = format!("{:?}", overrides.shared.layers.lock());
    let shown = format!("{layers} {:?}", overrides.list_for("limit"));
    assert!(shown.contains("callers: 1") && !shown.contains("alice"), "{shown}");
}

#[test]
fn what_is_no_override_of_a_caller_is_refused() {
    let message = |refused: Result<(), OverrideError>| refused.unwrap_err().to_string();
    let (overrides, now) = (handle(), SystemTime::now());
    for what in [Override::new().deny(), Override::new().deny().until(now)] {
        let refused = message(overrides.here().set("limit", what));
        assert!(refused.ends_with("`deny` is for single callers"), "{refused}");
    }
    for more in [Override::new().threshold(1), Override::new().enforcement(Enforcement::On)] {
        let refused = message(overrides.here().set(("limit", "alice"), more.deny()));
        assert!(
            refused.ends_with("`deny` takes nothing but `from`, `until` and `by`"),
            "{refused}"
        );
    }
    let refused = message(overrides.here().set(("limit", "alice"), Override::new().threshold(0)));
    assert!(refused.ends_with("`threshold` must be at least 1"), "{refused}");
    assert!(overrides.list_for("limit").is_empty());
}

#[cfg(feature = "overrides")]
#[test]
fn what_begins_at_the_time_of_the_server_has_begun() {
    let identities = Identities::new(None);
    for nanos in 0..10_000 {
        for step in [Duration::from_secs(60), Duration::ZERO] {
            let server = SystemTime::now() + step + Duration::from_nanos(nanos);
            identities.set_server_time(server);
            assert!(server <= identities.now(), "{nanos}");
        }
    }
}
