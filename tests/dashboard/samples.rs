//! The page counts each call once, with its outcome and who decided it.

use harness::{RedisServer, until};
use ratelimit_runtime::{Enforcement, Limiter, Override, Policy};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::operator::{Events, MINUTE, Operator, authorize, serve};

#[tokio::test]
async fn samples_count_each_call_once_and_go_on_where_a_page_left_off() {
    const PLAIN: Policy = Policy::sliding_window("sampled", MINUTE, 4);
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let mut events = operator.events().await;
    events.next("history").await;
    let mut counts = [0; 6];
    let mut add = |samples: &Value| {
        for sample in samples.as_array().unwrap() {
            let seen = &sample["limits"]["sampled"];
            for (sum, count) in counts.iter_mut().zip(seen.as_array().into_iter().flatten()) {
                *sum += count.as_u64().unwrap();
            }
        }
        counts
    };
    for _ in 0..3 {
        limiter.check(&PLAIN, "alice").await.unwrap();
    }
    while add(&events.next("samples").await)[0] < 3 {}
    let last_id = events.last_id.clone();
    drop(events);
    for _ in 0..3 {
        let _ = limiter.check(&PLAIN, "alice").await;
    }
    limiter
        .overrides()
        .here()
        .set("sampled", Override::new().enforcement(Enforcement::DryRun))
        .unwrap();
    let _ = limiter.check(&PLAIN, "alice").await.unwrap();

    // As a browser asks again.
    let resumed = operator.ask_events();
    let mut resumed = Events::of(resumed.header("last-event-id", last_id).send().await.unwrap());
    let mut sums = [0; 6];
    while sums.iter().sum::<u64>() < 7 {
        let (name, data) = resumed.any().await.expect("the stream goes on");
        assert_ne!(name, "history");
        if name == "samples" {
            sums = add(&data);
        }
    }
    assert_eq!(sums, [4, 2, 0, 1, 0, 0]);

    // What another process has told means nothing here; a page that comes later has all at once.
    let strange = operator.ask_events();
    let mut strange = Events::of(strange.header("last-event-id", "0-1").send().await.unwrap());
    let history = strange.next("history").await;
    let of_it = history
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|sample| sample["limits"]["sampled"].as_array().cloned().unwrap_or_default());
    assert_eq!(of_it.filter_map(|count| count.as_u64()).sum::<u64>(), 7);
    // Nor does a number that no sample has end the stream.
    let (process, _) = strange.last_id.split_once('-').unwrap();
    for number in [u64::MAX, u64::MAX - 1] {
        let forged = operator.ask_events();
        let forged = forged.header("last-event-id", format!("{process}-{number}"));
        Events::of(forged.send().await.unwrap()).next("limits").await;
    }
    // The limit of which no attribute tells.
    let told = operator.told_of("sampled").await;
    assert_eq!(told["written"]["tiers"], json!([{ "period": 60e3, "threshold": 4 }]));
    assert_eq!((&told["key"], &told["enforcement"]), (&Value::Null, &json!("dry_run")));
}

#[tokio::test]
async fn calls_that_find_no_permit_are_refused_ones() {
    const UPLOAD: Policy = Policy::concurrency_limit("sampled upload", 4);
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let mut events = operator.events().await;
    events.next("history").await;
    let mut calls = Vec::new();
    for _ in 0..7 {
        calls.push(limiter.check(&UPLOAD, "alice").await);
    }
    let mut refused = 0;
    while refused < 3 {
        for sample in events.next("samples").await.as_array().unwrap() {
            let seen = &sample["limits"]["sampled upload"];
            refused += seen[1].as_u64().unwrap_or_default();
        }
    }
    assert_eq!(refused, 3);
    let told = operator.told_of("sampled upload").await;
    let written = json!({ "tiers": [], "burst": null, "concurrency": 4, "lease": null });
    assert_eq!(told["written"], written);
}

#[tokio::test]
async fn calls_that_wait_in_line_are_told() {
    const LINE: Policy = Policy::sliding_window("sampled line", MINUTE, 1);
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let wait = || {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.check(&LINE, "alice").max_wait(60 * MINUTE).await })
    };
    wait().await.unwrap().unwrap();
    let calls = [wait(), wait()];
    for waiting in [2, 0] {
        until("the length of the line", async || {
            (operator.counts_of("sampled line").await["waiting"] == waiting).then_some(())
        })
        .await;
        calls.iter().for_each(JoinHandle::abort);
    }
}

#[tokio::test]
async fn samples_tell_what_redis_did_not_decide() {
    const P: Policy = Policy::sliding_window("lost", MINUTE, 1);
    let mut server = RedisServer::start();
    let limiter = Limiter::connect(&server.url()).await.unwrap();
    let operator = Operator::of(&limiter).await;
    let mut events = operator.events().await;
    events.next("history").await;
    let _ = limiter.check(&P, "alice").await;
    for _ in 0..3 {
        let _ = limiter.check(&P, "alice").await;
    }
    server.kill();
    for _ in 0..10 {
        let _ = limiter.check(&P, "bob").await;
        let bob = limiter.check(&P, "bob").on_store_error(ratelimit_runtime::OnStoreError::Deny);
        let _ = bob.await;
    }
    let (mut counts, mut failure) = ([0_u64; 6], Value::Null);
    let counting = async {
        while counts.iter().sum::<u64>() < 34 || failure.is_null() {
            match events.any().await {
                Some((name, view)) if name == "limits" => {
                    failure = view["servers"][0]["failure"].clone();
                }
                Some((name, _)) if name == "counts" => {}
                Some((_, samples)) => {
                    for sample in samples.as_array().unwrap() {
                        let seen = sample["limits"]["lost"].as_array();
                        for (sum, count) in counts.iter_mut().zip(seen.into_iter().flatten()) {
                            *sum += count.as_u64().unwrap();
                        }
                    }
                }
                // The history has all of it once more.
                None => {
                    counts = [0; 6];
                    events = operator.events().await;
                }
            }
        }
    };
    let counted = tokio::time::timeout(MINUTE, counting).await;
    assert!(counted.is_ok(), "{counts:?}, {failure}");
    let [admitted, refused, repeated, dry_run, degraded, undecided] = counts;
    // Alice: one, one that Redis refused, two that it was not asked for. Bob: one by the process
    // alone, nine that it refused, and ten that it was not to decide.
    assert_eq!((admitted, refused, repeated, dry_run), (2, 10, 2, 0));
    assert_eq!((degraded, undecided), (10, 10));
    assert!(failure.is_string(), "{failure}");
}

#[test]
fn a_page_goes_on_when_the_runtime_that_made_it_has_ended() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let made = runtime().block_on(async {
        let router = ratelimit_dashboard::router(Limiter::in_memory(), authorize);
        // Its task has begun.
        tokio::task::yield_now().await;
        router
    });
    runtime().block_on(async {
        let operator = Operator::at(serve(made).await).await;
        let mut events = operator.events().await;
        events.next("history").await;
        events.next("samples").await;
    });
}
