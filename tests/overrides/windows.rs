//! An override begins and ends at its own times, in every process that follows it.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use harness::{RedisServer, Watch, on_each_store, until};
use ratelimit_runtime::{
    Enforcement, Limiter, Override, Policy, RateLimitError,
    overrides::{OverrideError, OverrideSource, Place},
};
use tokio::time::timeout;

use crate::sources::Follower;

const MINUTE: Duration = Duration::from_secs(60);
const POLICY: Policy = Policy::sliding_window("windowed", MINUTE, 5);

fn after(time: Duration) -> SystemTime {
    // Documents have whole nanoseconds, and a round number is the same after them.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    SystemTime::UNIX_EPOCH + Duration::from_millis(now.as_millis().try_into().unwrap()) + time
}

async fn threshold(limiter: &Limiter, caller: &str) -> u32 {
    limiter.peek(&POLICY, caller).cost(0).await.unwrap().threshold()
}

async fn until_threshold(limiter: &Limiter, caller: &str, expected: u32) {
    let is_it = async || (threshold(limiter, caller).await == expected).then_some(());
    until("the threshold", is_it).await;
}

#[test]
fn several_windows_apply_in_turn_in_every_process() {
    let server = RedisServer::start();
    let mut fleet = [Follower::of(&server), Follower::of(&server)];
    assert_eq!(fleet.each_mut().map(Follower::next), ["100, as written", "100, as written"]);
    let times = [1_500, 2_500, 3_500].map(|millis| after(Duration::from_millis(millis)));
    let plan: Override = vec![
        Override::new().threshold(20),
        Override::new().threshold(50).from(times[0]).until(times[1]),
        Override::new().threshold(70).from(times[1]).until(times[2]),
    ]
    .into();
    let _: u64 = server.command(&format!("HSET ratelimit:overrides shared {plan}"));
    for (holds, starts) in [(20, None), (50, Some(times[0])), (70, Some(times[1])), (20, None)] {
        for follower in &mut fleet {
            assert_eq!(follower.next(), format!("{holds}, as written"));
            assert!(starts.is_none_or(|starts| starts <= SystemTime::now()));
        }
    }
    assert!(times[2] <= SystemTime::now());
}

#[test]
fn a_window_that_passed_while_a_process_was_not_there_does_not_happen() {
    let server = RedisServer::start();
    let (from, until) = (after(Duration::ZERO) - MINUTE, after(Duration::ZERO) - MINUTE / 2);
    let missed = Override::new().threshold(50).from(from).until(until);
    let _: u64 = server.command(&format!("HSET ratelimit:overrides shared {missed}"));
    assert_eq!(Follower::of(&server).next(), "100, as written");
}

#[tokio::test]
async fn an_override_begins_and_ends_in_memory_and_each_is_one_change_in_the_history() {
    let limiter = Limiter::in_memory();
    let overrides = limiter.overrides();
    let (from, end) = (after(Duration::from_millis(300)), after(Duration::from_millis(600)));
    let what = Override::new().threshold(50).from(from).until(end);
    overrides.here().set(POLICY.name(), what.clone()).unwrap();
    overrides.here().set((POLICY.name(), "alice"), what.clone().threshold(60)).unwrap();
    for caller in ["alice", "bob"] {
        assert_eq!(threshold(&limiter, caller).await, 5);
    }
    // It is listed before it begins, and is in effect after that alone.
    assert_eq!(overrides.here().get(POLICY.name()), Some(what.clone()));
    assert_eq!(overrides.by_source(POLICY.name()), [(OverrideSource::Program, what.clone())]);
    assert_eq!(overrides.get(POLICY.name()), None);
    assert_eq!(what.at(from - Duration::from_millis(1)), None);
    assert_eq!((what.at(from), what.at(end)), (Some(&what), None));

    until_threshold(&limiter, "bob", 50).await;
    assert!(from <= SystemTime::now());
    assert_eq!(overrides.get(POLICY.name()), Some(what.clone()));
    until_threshold(&limiter, "alice", 60).await;
    until_threshold(&limiter, "bob", 5).await;
    until_threshold(&limiter, "alice", 5).await;
    assert!(end <= SystemTime::now());
    let history = overrides.history();
    let of_limit = history.iter().filter(|change| change.caller.is_none());
    let of_limit: Vec<_> = of_limit.map(|it| (it.before.clone(), it.after.clone())).collect();
    assert_eq!(of_limit, [(Some(what.clone()), None), (None, Some(what))]);
}

#[tokio::test]
async fn the_global_switch_and_a_deny_have_windows() {
    let limiter = Limiter::in_memory();
    let here = limiter.overrides().here();
    let (from, end) = (after(Duration::from_millis(200)), after(Duration::from_millis(500)));
    let window = |what: Override| what.from(from).until(end);
    here.set(Place::all(), window(Enforcement::Off.into())).unwrap();
    here.set((Place::all(), "mallory"), window(Override::new().deny())).unwrap();
    assert_eq!(limiter.overrides().enforcement(), None);
    let denied = async || match limiter.peek(&POLICY, "mallory").await {
        Ok(_) => None,
        Err(RateLimitError::Denied(_)) => Some(true),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(denied().await, None);
    until("the switch", async || limiter.overrides().enforcement()).await;
    until("the deny", denied).await;
    until("its end", async || denied().await.is_none().then_some(())).await;
    assert!(end <= SystemTime::now());
    let is_over = async || limiter.overrides().enforcement().is_none().then_some(());
    until("the end", is_over).await;
}

#[tokio::test]
async fn an_operator_s_window_comes_before_what_the_fleet_has_meanwhile() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    let overrides = limiter.overrides();
    for place in [Place::from(POLICY.name()), Place::caller(POLICY.name(), "alice")] {
        overrides.fleet().set(place, Override::new().threshold(7)).await.unwrap();
    }
    until_threshold(&limiter, "alice", 7).await;
    until_threshold(&limiter, "bob", 7).await;
    let from = after(Duration::from_millis(300));
    for place in [Place::from(POLICY.name()), Place::caller(POLICY.name(), "alice")] {
        let later = Override::new().threshold(9).from(from);
        overrides.by("ann").here().set(place, later).unwrap();
    }
    assert_eq!((threshold(&limiter, "alice").await, threshold(&limiter, "bob").await), (7, 7));
    until_threshold(&limiter, "alice", 9).await;
    until_threshold(&limiter, "bob", 9).await;
}

#[tokio::test]
async fn documents_have_windows_of_limits_and_of_callers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("limits.toml");
    let later = Override::new().threshold(50).from(after(Duration::from_millis(700)));
    let later = serde_json::to_value(&later).unwrap();
    let from = later["from"].as_str().unwrap();
    let text = format!(
        "limits.windowed = [{{ threshold = 20 }}, {{ threshold = 50, from = {from} }}]\n\
         [[callers]]\nlimit = \"windowed\"\ncaller = \"alice\"\nthreshold = 30\n\
         [[callers]]\nlimit = \"windowed\"\ncaller = \"alice\"\nthreshold = 60\n\
         from = \"{from}\""
    );
    fs::write(&path, text).unwrap();
    let limiter = Limiter::in_memory();
    limiter.overrides().follow_file(&path).unwrap();
    assert_eq!((threshold(&limiter, "alice").await, threshold(&limiter, "bob").await), (30, 20));
    until_threshold(&limiter, "bob", 50).await;
    until_threshold(&limiter, "alice", 60).await;
}

#[test]
fn a_window_without_time_is_refused_with_its_times() {
    let limiter = Limiter::in_memory();
    let time = |text: &str| -> Override { format!(r#"{{"until":"{text}"}}"#).parse().unwrap() };
    let friday = time("2026-11-27T18:00:00Z").until.unwrap();
    let refused = |what: Override| {
        let error: OverrideError = limiter.overrides().here().set("later", what).unwrap_err();
        error.to_string()
    };
    let message = "invalid override of rate limit `later`: `until` is later than `from`, and \
                   2026-11-27T18:00:00Z is not later than 2026-11-27T18:00:01Z";
    let what = Override::new().threshold(5).until(friday);
    let late = what.clone().from(friday + Duration::from_secs(1));
    assert_eq!(refused(late.clone()), message);
    assert_eq!(refused(vec![what.clone(), late].into()), message);
    let nested: Override = vec![what.clone(), vec![what.clone()].into()].into();
    let windows = "`windows` exclude all other values";
    assert!(refused(nested).contains(windows));
    let mut mixed: Override = vec![what].into();
    mixed.threshold = Some(5);
    assert!(refused(mixed).contains(windows));
    for (text, why) in [
        ("[]", "a list of overrides is not empty"),
        ("[{\"threshold\": 5}, 5]", "a list of such"),
        ("{\"from\": \"friday\"}", "a time such as `from` or `until`"),
    ] {
        let error = text.parse::<Override>().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    assert_eq!(limiter.overrides().history(), []);
}

#[tokio::test]
async fn a_misspelt_limit_is_a_problem_before_its_window_begins() {
    let watch = Watch::start();
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    let later = Override::new().threshold(5).from(after(MINUTE));
    let _: u64 = server.command(&format!("HSET ratelimit:overrides windoved {later}"));
    until("a problem", async || limiter.overrides().problems().pop()).await;
    until("a line", async || (watch.count("no limit is named `windoved`") == 1).then_some(()))
        .await;
}

#[tokio::test]
async fn an_override_that_begins_reaches_a_call_that_waits_alone() {
    const HOUR: Duration = Duration::from_secs(3_600);
    const LINE: Policy = Policy::sliding_window("waits alone", HOUR, 1);
    on_each_store(async |limiter| {
        for place in [Place::from(LINE.name()), Place::all(), Place::caller(LINE.name(), "alice")] {
            limiter.reset(&LINE, "alice").await.unwrap();
            limiter.check(&LINE, "alice").await.unwrap();
            let from = after(Duration::from_millis(500));
            let off = Override::new().enforcement(Enforcement::Off).from(from);
            limiter.overrides().here().set(place.clone(), off).unwrap();
            let call = limiter.check(&LINE, "alice").max_wait(2 * HOUR).into_future();
            let decision = timeout(Duration::from_secs(20), call).await;
            let decision = decision.unwrap_or_else(|_| panic!("{place:?} has begun")).unwrap();
            assert!(!decision.is_counted() && from <= SystemTime::now());
            limiter.overrides().here().remove(place);
        }
    })
    .await;
}

/// The window that nobody saw has begun and ended, and nothing else has changed since.
#[tokio::test]
async fn a_call_waits_for_the_next_window_after_one_that_nobody_saw() {
    const HOUR: Duration = Duration::from_secs(3_600);
    const LINE: Policy = Policy::sliding_window("unseen window", HOUR, 1);
    let limiter = Limiter::in_memory();
    let [seen, over, next] = [100, 200, 800].map(|millis| after(Duration::from_millis(millis)));
    let off = || Override::new().enforcement(Enforcement::Off);
    let windows =
        vec![Override::new().threshold(1), off().from(seen).until(over), off().from(next)];
    limiter.overrides().here().set(LINE.name(), windows).unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    limiter.check(&LINE, "alice").await.unwrap();
    let call = limiter.check(&LINE, "alice").max_wait(2 * HOUR).into_future();
    let decision = timeout(Duration::from_secs(20), call).await.expect("it has begun").unwrap();
    assert!(!decision.is_counted() && next <= SystemTime::now());
}

#[tokio::test]
async fn a_denied_caller_is_told_the_end_of_the_last_deny_that_follows() {
    let limiter = Limiter::in_memory();
    let here = limiter.overrides().here();
    let [soon, later, last] = [1, 2, 3].map(|minutes| after(minutes * MINUTE));
    let deny = || Override::new().deny();
    let told = async || match limiter.check(&POLICY, "mallory").await {
        Err(RateLimitError::Denied(denied)) => denied.retry_after(),
        other => panic!("{other:?}"),
    };
    let place = Place::caller(POLICY.name(), "mallory");
    let near = |told: Option<Duration>, minutes: u32| {
        let told = told.unwrap();
        assert!(told <= minutes * MINUTE && told + MINUTE / 2 > minutes * MINUTE, "{told:?}");
    };
    // One that begins as another ends, one that lasts for longer, and one of all limits.
    here.set(place.clone(), [deny().until(soon), deny().from(soon).until(later)]).unwrap();
    near(told().await, 2);
    here.set(place.clone(), [deny().until(later), deny().until(soon)]).unwrap();
    near(told().await, 2);
    here.set((Place::all(), "mallory"), deny().until(last)).unwrap();
    near(told().await, 3);
    here.set((Place::all(), "mallory"), deny()).unwrap();
    assert_eq!(told().await, None);
    // A pause between two, and an exemption.
    here.remove((Place::all(), "mallory"));
    here.set(place.clone(), [deny().until(soon), deny().from(later).until(last)]).unwrap();
    near(told().await, 1);
    let exempt = Override::new().enforcement(Enforcement::Off).from(soon);
    here.set(place, [deny().until(last), exempt]).unwrap();
    near(told().await, 1);
}
