//! Rate limit headers and problem documents are valid by parsers of other crates.

use std::time::{Duration, SystemTime};

use ratelimit_runtime::{
    Decision, Limiter, Override, Policy, QuotaUnit, RateLimitError, observe,
    web::{HeaderSyntax, PROBLEM_JSON, Refusal},
};
use serde_json::json;
use sfv::{BareItem, List, ListEntry, Parser};

const SECOND: Duration = Duration::from_secs(1);

type Answer = Result<Decision, RateLimitError>;

/// Returns a list of strings with integer parameters, by a parser of RFC 9651.
fn parsed(value: &str) -> Vec<(String, Vec<(String, i64)>)> {
    let list: List = Parser::new(value).parse().unwrap_or_else(|e| panic!("{value}: {e}"));
    list.iter()
        .map(|entry| {
            let ListEntry::Item(item) = entry else { panic!("{value}: an inner list") };
            let BareItem::String(name) = &item.bare_item else { panic!("{value}: no string") };
            let parameters = item.params.iter().map(|(key, value)| {
                let BareItem::Integer(number) = value else { panic!("{key} is no integer") };
                (key.to_string(), i64::from(*number))
            });
            (name.as_str().to_owned(), parameters.collect())
        })
        .collect()
}

fn item(name: &str, parameters: &[(&str, i64)]) -> (String, Vec<(String, i64)>) {
    let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), *value));
    (name.to_owned(), parameters.collect())
}

fn field(fields: &[(&'static str, String)], name: &str) -> String {
    let found = fields.iter().find(|(field, _)| *field == name);
    found.unwrap_or_else(|| panic!("{name} in {fields:?}")).1.clone()
}

/// Returns the legacy fields without their prefix.
fn legacy(answers: &[Answer]) -> Vec<(&'static str, i64)> {
    let fields = HeaderSyntax::Legacy.headers(answers).into_iter();
    let numbers = fields.filter(|(name, _)| *name != "x-ratelimit-scope");
    numbers
        .map(|(name, value)| (name.strip_prefix("x-ratelimit-").unwrap(), value.parse().unwrap()))
        .collect()
}

async fn answers(limiter: &Limiter, policy: &Policy, calls: usize) -> Vec<Answer> {
    let mut answers = Vec::new();
    for _ in 0..calls {
        answers.push(limiter.check(policy, "someone").await);
    }
    answers
}

#[tokio::test(start_paused = true)]
async fn waits_are_rounded_up_and_the_window_is_in_seconds() {
    let policy = Policy::sliding_window("burst", Duration::from_millis(2_500), 2);
    let limiter = Limiter::in_memory();
    let mut seen = answers(&limiter, &policy, 1).await;
    tokio::time::advance(Duration::from_millis(300)).await;
    seen.extend(answers(&limiter, &policy, 1).await);

    let first = HeaderSyntax::Draft11.headers(&seen[..1]);
    assert_eq!(parsed(&field(&first, "ratelimit-policy")), [item("burst", &[("q", 2), ("w", 3)])]);
    assert_eq!(parsed(&field(&first, "ratelimit")), [item("burst", &[("r", 1), ("t", 3)])]);
    // 2.2 s until more can be had.
    let second = HeaderSyntax::Draft11.headers(&seen[1..]);
    assert_eq!(parsed(&field(&second, "ratelimit")), [item("burst", &[("r", 0), ("t", 3)])]);
    tokio::time::advance(Duration::from_millis(1_200)).await;
    // Exactly 1 s.
    let refused = limiter.check(&policy, "someone").await;
    let third = HeaderSyntax::Draft11.headers(std::slice::from_ref(&refused));
    assert_eq!(parsed(&field(&third, "ratelimit")), [item("burst", &[("r", 0), ("t", 1)])]);
    let refusal = Refusal::from(refused.unwrap_err());
    assert_eq!(refusal.retry_after(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_window_below_a_second_is_omitted_and_a_wait_is_at_least_one() {
    let policy = Policy::sliding_window("fast", Duration::from_millis(500), 1);
    let limiter = Limiter::in_memory();
    let seen = answers(&limiter, &policy, 2).await;
    let fields = HeaderSyntax::Draft11.headers(&seen[1..]);
    assert_eq!(parsed(&field(&fields, "ratelimit-policy")), [item("fast", &[("q", 1)])]);
    assert_eq!(parsed(&field(&fields, "ratelimit")), [item("fast", &[("r", 0), ("t", 1)])]);
    let refusal = Refusal::from(seen[1].clone().unwrap_err());
    assert_eq!(field(&refusal.headers(HeaderSyntax::Off), "retry-after"), "1");
}

#[tokio::test(start_paused = true)]
async fn every_policy_is_listed_once_with_its_last_answer() {
    let by_ip = Policy::sliding_window("by ip", 60 * SECOND, 5);
    let by_user = Policy::sliding_window("by user", 10 * SECOND, 3).tier(60 * SECOND, 4);
    let limiter = Limiter::in_memory();
    let mut seen = answers(&limiter, &by_ip, 1).await;
    seen.extend(answers(&limiter, &by_user, 2).await);
    seen.extend(answers(&limiter, &by_ip, 1).await);
    let fields = HeaderSyntax::Both.headers(&seen);
    assert_eq!(
        parsed(&field(&fields, "ratelimit-policy")),
        [item("by ip", &[("q", 5), ("w", 60)]), item("by user", &[("q", 3), ("w", 10)])]
    );
    assert_eq!(
        parsed(&field(&fields, "ratelimit")),
        [item("by ip", &[("r", 3), ("t", 60)]), item("by user", &[("r", 1), ("t", 10)])]
    );
    // The limit with the fewest units left, and of its tiers the one of 10 s.
    assert_eq!(legacy(&seen), [("limit", 3), ("remaining", 1), ("reset", 10)]);
}

#[tokio::test(start_paused = true)]
async fn the_quota_of_a_bucket_is_its_burst_and_its_window_the_time_to_fill_it() {
    let minute = Policy::token_bucket("bucket", 60 * SECOND, 5);
    // At 5 a minute, 10 tokens take 2 minutes, and one takes 12 s.
    for (policy, q, w) in [
        (minute.burst(10), 10, 120),
        (minute, 5, 60),
        (minute.burst(2), 2, 24),
        (minute.burst(1), 1, 12),
    ] {
        let seen = answers(&Limiter::in_memory(), &policy, usize::try_from(q).unwrap() + 1).await;
        for (left, answer) in (0..q).rev().chain([0]).zip(seen.chunks(1)) {
            let fields = HeaderSyntax::Both.headers(answer);
            let policies = parsed(&field(&fields, "ratelimit-policy"));
            assert_eq!(policies, [item("bucket", &[("q", q), ("w", w)])]);
            let limits = parsed(&field(&fields, "ratelimit"));
            assert_eq!(limits, [item("bucket", &[("r", left), ("t", 12)])]);
            assert_eq!(legacy(answer), [("limit", q), ("remaining", left), ("reset", 12)]);
        }
        assert!(seen.last().unwrap().is_err());
    }
    // Under a lease, calls may take fewer: 200 tokens come back during its 20 ms.
    let leased = Policy::token_bucket("leased", SECOND, 10_000).lease(Duration::from_millis(20));
    let seen = answers(&Limiter::in_memory(), &leased, 1).await;
    assert_eq!(legacy(&seen)[..2], [("limit", 9_800), ("remaining", 9_799)]);
    // A bucket that fills within a second has no window.
    let paced = Policy::token_bucket("paced", SECOND, 10).burst(1);
    let seen = answers(&Limiter::in_memory(), &paced, 1).await;
    let fields = HeaderSyntax::Draft11.headers(&seen);
    assert_eq!(parsed(&field(&fields, "ratelimit-policy")), [item("paced", &[("q", 1)])]);
    // 4 tokens a microsecond.
    let fast = Policy::token_bucket("fast", Duration::from_millis(1), 4_000).burst(1);
    let seen = answers(&Limiter::in_memory(), &fast, 1).await;
    let fields = HeaderSyntax::Draft11.headers(&seen);
    assert_eq!(parsed(&field(&fields, "ratelimit-policy")), [item("fast", &[("q", 1)])]);
}

#[tokio::test(start_paused = true)]
async fn legacy_fields_describe_the_tier_with_the_fewest_units_left_or_the_one_that_refused() {
    let policy = Policy::sliding_window("tiers", SECOND, 2).tier(3_600 * SECOND, 3);
    let limiter = Limiter::in_memory();
    let first = answers(&limiter, &policy, 3).await;
    assert_eq!(legacy(&first[..1]), [("limit", 2), ("remaining", 1), ("reset", 1)]);
    assert_eq!(legacy(&first[2..]), [("limit", 2), ("remaining", 0), ("reset", 1)]);
    tokio::time::advance(SECOND).await;
    let second = answers(&limiter, &policy, 2).await;
    for answer in second.chunks(1) {
        assert_eq!(legacy(answer), [("limit", 3), ("remaining", 0), ("reset", 3_599)]);
    }
    // Of several limits, the one that refused, although another one has as few left.
    let other = Policy::sliding_window("other", 60 * SECOND, 1);
    let both = [answers(&limiter, &other, 1).await, second].concat();
    assert_eq!(legacy(&both), [("limit", 3), ("remaining", 0), ("reset", 3_599)]);
}

#[tokio::test]
async fn a_syntax_has_its_fields_and_no_others() {
    let policy = Policy::sliding_window("p", SECOND, 1);
    let seen = answers(&Limiter::in_memory(), &policy, 1).await;
    let names = |syntax: HeaderSyntax, answers: &[Answer]| {
        syntax.headers(answers).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    let draft = ["ratelimit-policy", "ratelimit"];
    let legacy = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    assert_eq!(names(HeaderSyntax::default(), &seen), draft);
    assert_eq!(names(HeaderSyntax::Legacy, &seen), legacy);
    let refused = answers(&Limiter::in_memory(), &policy, 2).await;
    assert_eq!(names(HeaderSyntax::Both, &refused), HeaderSyntax::ALL);
    assert_eq!(names(HeaderSyntax::Off, &seen), [""; 0]);
    assert_eq!(names(HeaderSyntax::Both, &[]), [""; 0]);
    // A permit is free at any time.
    let in_flight = Policy::concurrency_limit("p", 2);
    let seen = answers(&Limiter::in_memory(), &in_flight, 1).await;
    let fields = [draft, ["x-ratelimit-limit", "x-ratelimit-remaining"]].concat();
    assert_eq!(names(HeaderSyntax::Both, &seen), fields);
    // There is no quota to report.
    let too_large =
        answers(&Limiter::in_memory(), &Policy::sliding_window("p", SECOND, 0), 1).await;
    assert!(matches!(too_large[0], Err(RateLimitError::TooLarge(_))));
    assert_eq!(names(HeaderSyntax::Both, &too_large), [""; 0]);
    let wrong = Policy::sliding_window("p", Duration::ZERO, 1);
    let invalid = answers(&Limiter::in_memory(), &wrong, 1).await;
    assert!(matches!(invalid[0], Err(RateLimitError::InvalidPolicy(_))));
    assert_eq!(names(HeaderSyntax::Both, &invalid), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_fields_of_a_limit_are_those_of_its_window_or_of_its_calls_in_flight() {
    let policy = Policy::sliding_window("both", 60 * SECOND, 9).concurrency(2);
    let seen = answers(&Limiter::in_memory(), &policy, 3).await;
    let admitted = HeaderSyntax::Both.headers(&seen[..2]);
    assert_eq!(field(&admitted, "ratelimit-policy"), r#""both";q=9;w=60"#);
    assert_eq!(field(&admitted, "ratelimit"), r#""both";r=7;t=60"#);
    // The decisions are kept, and so are their permits.
    let busy = Refusal::from(seen[2].clone().unwrap_err());
    assert_eq!(busy.status(), 429);
    let waits = ["cache-control", "retry-after", "retry-after-ms"];
    let mut fields = busy.headers(HeaderSyntax::Both);
    fields.retain(|(name, _)| !waits.contains(name));
    assert_eq!(
        fields,
        [
            ("ratelimit-policy", r#""both-in-flight";q=2;qu="concurrent-requests""#.to_owned()),
            ("ratelimit", r#""both-in-flight";r=0"#.to_owned()),
            ("x-ratelimit-limit", "2".to_owned()),
            ("x-ratelimit-remaining", "0".to_owned()),
            ("x-ratelimit-scope", "user".to_owned()),
        ]
    );
    let policies: List = Parser::new(&fields[0].1).parse().unwrap();
    let [ListEntry::Item(policy)] = &policies[..] else { panic!("{policies:?}") };
    let unit = policy.params.get("qu").and_then(BareItem::as_string);
    assert_eq!(unit.map(sfv::StringRef::as_str), Some("concurrent-requests"));
}

#[tokio::test]
async fn a_quota_of_other_units_than_requests_tells_its_unit() {
    for (unit, parameter) in [
        (QuotaUnit::Requests, ""),
        (QuotaUnit::ContentBytes, r#";qu="content-bytes""#),
        (QuotaUnit::Tokens, r#";qu="tokens""#),
        (QuotaUnit::Rows, r#";qu="rows""#),
        (QuotaUnit::Other, r#";qu="units""#),
    ] {
        let limiter = Limiter::in_memory();
        let policy = Policy::fixed_window("metered", 60 * SECOND, 2).quota_unit(unit);
        // The second finds no permit, and the last no unit.
        let mut seen = answers(&limiter, &policy.concurrency(1), 2).await;
        seen.extend(answers(&limiter, &policy, 2).await);
        let policies: Vec<_> = seen
            .chunks(1)
            .map(|answer| HeaderSyntax::Draft11.headers(answer)[0].1.clone())
            .collect();
        let window = format!(r#""metered";q=2{parameter};w=60"#);
        let in_flight = r#""metered-in-flight";q=1;qu="concurrent-requests""#.to_owned();
        assert_eq!(policies, [window.clone(), in_flight, window.clone(), window]);
        let parsed: List = Parser::new(&policies[0]).parse().unwrap();
        let [ListEntry::Item(item)] = &parsed[..] else { panic!("{parsed:?}") };
        let told = item.params.get("qu").and_then(BareItem::as_string).map(sfv::StringRef::as_str);
        assert_eq!(told.unwrap_or("requests"), unit.as_str());
    }
}

#[tokio::test]
async fn one_name_has_one_quota() {
    let policy = Policy::sliding_window("both", 60 * SECOND, 9).concurrency(1);
    let seen = answers(&Limiter::in_memory(), &policy, 2).await;
    let fields = HeaderSyntax::Draft11.headers(&seen);
    let expected = r#""both-in-flight";q=1;qu="concurrent-requests", "both";q=9;w=60"#;
    assert_eq!(field(&fields, "ratelimit-policy"), expected);
    assert_eq!(field(&fields, "ratelimit"), r#""both-in-flight";r=0, "both";r=8;t=60"#);
    let problem = Refusal::from(seen[1].clone().unwrap_err()).problem();
    assert!(problem.contains(r#""violated-policies":["both-in-flight"]"#), "{problem}");
}

#[tokio::test]
async fn the_fields_of_a_settled_call_are_those_after_the_settle() {
    let limiter = Limiter::in_memory();
    for policy in [
        Policy::sliding_window("tokens", 60 * SECOND, 1_000),
        Policy::token_bucket("tokens", 60 * SECOND, 1_000),
        Policy::fixed_window("tokens", 60 * SECOND, 1_000),
        Policy::sliding_counter("tokens", 60 * SECOND, 1_000),
    ] {
        for (actual, left) in [(4, 996), (700, 300), (2_000, 0), (0, 1_000)] {
            let caller = format!("{actual}");
            let call = limiter.check(&policy, &*caller).cost(600);
            let (decision, seen) = observe(async { call.await.unwrap() }).await;
            assert_eq!(decision.remaining(), 400);
            decision.settle(actual);
            assert_eq!(decision.remaining(), left, "{policy:?}");
            assert_eq!(limiter.peek(&policy, &*caller).cost(0).await.unwrap().remaining(), left);
            let fields = HeaderSyntax::Draft11.headers(&seen);
            let item = field(&fields, "ratelimit");
            assert!(item.starts_with(&format!(r#""tokens";r={left}"#)), "{item}");
            // All is back: there will not be more.
            assert_eq!(item.contains(";t="), actual > 0, "{item}");
        }
    }
}

#[tokio::test]
async fn any_name_is_a_string_of_a_field_and_of_a_problem() {
    for (name, expected) in [
        ("app::mail::send", "app::mail::send"),
        (r#"a "b" \c"#, r#"a "b" \c"#),
        ("50%", "50%25"),
        ("grüße", "gr%C3%BC%C3%9Fe"),
        ("a\r\nset-cookie: b", "a%0D%0Aset-cookie: b"),
        ("\0\x7f\t", "%00%7F%09"),
        ("", ""),
    ] {
        let policy = Policy::sliding_window(name, SECOND, 1);
        let seen = answers(&Limiter::in_memory(), &policy, 2).await;
        let fields = HeaderSyntax::Draft11.headers(&seen);
        for field_name in ["ratelimit", "ratelimit-policy"] {
            assert_eq!(parsed(&field(&fields, field_name))[0].0, expected, "{name:?}");
        }
        let refusal = Refusal::from(seen[1].clone().unwrap_err());
        let problem: serde_json::Value = serde_json::from_str(&refusal.problem()).unwrap();
        assert_eq!(problem["violated-policies"], json!([expected]));
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.starts_with(&format!("rate limit `{name}` exceeded")), "{detail}");
    }
}

#[tokio::test]
async fn a_refusal_names_its_kind() {
    let problem = |refusal: &Refusal| -> serde_json::Value {
        serde_json::from_str(&refusal.problem()).expect("it is JSON")
    };
    let policy = Policy::sliding_window("reply", 30 * SECOND, 1);
    let seen = answers(&Limiter::in_memory(), &policy, 2).await;
    let exceeded = Refusal::from(seen[1].clone().unwrap_err());
    assert_eq!(exceeded.status(), 429);
    let body = problem(&exceeded);
    assert_eq!(body["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(body["status"], 429);
    assert_eq!(body["violated-policies"], json!(["reply"]));
    let fields = exceeded.headers(HeaderSyntax::Draft11);
    assert_eq!(field(&fields, "retry-after"), "30");
    assert_eq!(field(&fields, "cache-control"), "no-store");
    assert_eq!(parsed(&field(&fields, "ratelimit")), [item("reply", &[("r", 0), ("t", 30)])]);

    let too_large = Policy::sliding_window("reply", 30 * SECOND, 0);
    let seen = answers(&Limiter::in_memory(), &too_large, 1).await;
    let too_large = Refusal::from(seen[0].clone().unwrap_err());
    // Clients repeat other refusals by themselves.
    assert_eq!((too_large.status(), too_large.retry_after()), (422, None));
    assert_eq!(too_large.headers(HeaderSyntax::Both), [("cache-control", "no-store".to_owned())]);
    assert_eq!(
        problem(&too_large),
        json!({
            "type": "https://docs.rs/ratelimit-runtime/latest/ratelimit_runtime/struct.TooLarge.html",
            "title": "Request takes more than its rate limit ever admits",
            "status": 422,
            "detail": "rate limit `reply` admits nothing: its threshold is 0",
            "violated-policies": ["reply"],
        })
    );

    // An end is a wait of whole seconds, rounded up.
    let (limiter, policy) = (Limiter::in_memory(), Policy::sliding_window("reply", 30 * SECOND, 1));
    let denied = async |what: Override| {
        limiter.overrides().here().set(("reply", "someone"), what).unwrap();
        let seen = answers(&limiter, &policy, 1).await;
        (Refusal::from(seen[0].clone().unwrap_err()), HeaderSyntax::Both.headers(&seen))
    };
    let (for_ever, fields) = denied(Override::new().deny()).await;
    assert_eq!((for_ever.status(), for_ever.retry_after()), (403, None));
    assert!(fields.is_empty(), "{fields:?}");
    assert_eq!(
        problem(&for_ever),
        json!({
            "type": "https://docs.rs/ratelimit-runtime/latest/ratelimit_runtime/struct.Denied.html",
            "title": "The client is shut out",
            "status": 403,
            "detail": "rate limit `reply` denies the caller",
        })
    );
    let in_a_minute = SystemTime::now() + 60 * SECOND;
    let (until, _) = denied(Override::new().deny().until(in_a_minute)).await;
    assert_eq!((until.status(), until.retry_after()), (429, Some(60)));
    assert_eq!(problem(&until)["status"], 429);

    let invalid = Policy::sliding_window("reply", Duration::ZERO, 1);
    let seen = answers(&Limiter::in_memory(), &invalid, 1).await;
    let invalid = Refusal::from(seen[0].clone().unwrap_err());
    assert_eq!((invalid.status(), invalid.retry_after()), (500, None));
    assert_eq!(problem(&invalid)["type"], "about:blank");
    assert_eq!(problem(&invalid)["violated-policies"], json!(null));

    let nobody = Refusal::NoIdentity;
    assert_eq!((nobody.status(), nobody.retry_after()), (400, None));
    assert_eq!(
        problem(&nobody),
        json!({
            "type": "about:blank",
            "title": "Bad Request",
            "status": 400,
            "detail": "the request does not identify its caller",
        })
    );
    assert_eq!(nobody.headers(HeaderSyntax::Both), [("cache-control", "no-store".to_owned())]);
    assert_eq!(PROBLEM_JSON, "application/problem+json");
}
