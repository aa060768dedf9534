//! The registry lists every annotated function of the program, called or not.

use std::time::Duration;

use ratelimit_runtime::{
    Algorithm, RateLimitError,
    limits::{LimitList, RegisteredPolicy, conflicts, policies},
    rate_limit,
};

#[rate_limit(period = 30, threshold = 2, key = name)]
async fn say_hi(name: String) -> Result<String, RateLimitError> {
    Ok(name)
}

mod mail {
    use ratelimit_runtime::{RateLimitError, rate_limit};

    pub(crate) struct Mailer;

    impl Mailer {
        #[rate_limit(
            tier(period = "1m", threshold = 1),
            tier(period = "1h", threshold = limits.per_hour),
            key = (tenant, user),
            cost = recipients.count(),
            dry_run
        )]
        pub(crate) async fn send(
            &self,
            limits: super::Limits,
            tenant: u64,
            user: &str,
            recipients: super::Recipients,
        ) -> Result<(), RateLimitError> {
            Ok(())
        }
    }

    pub(crate) trait Report {
        #[rate_limit(algorithm = token_bucket, period = 60, threshold = 10, burst = 3)]
        async fn report<T: Sync>(&self, _: &T) -> Result<(), RateLimitError> {
            Ok(())
        }
    }

    impl Report for Mailer {}
}

struct Recipients(u32);

impl Recipients {
    fn count(&self) -> u32 {
        self.0
    }
}

struct Limits {
    per_hour: u32,
}

#[rate_limit(name = "login", period = 900, threshold = 5, key = account)]
async fn login(account: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "login", period = 900, threshold = 50, key = account)]
async fn login_by_token(account: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "same", period = 1, threshold = 1, key = 1, count_rejected)]
async fn same() -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "same", period = 1, threshold = 1, key = 2, count_rejected)]
async fn same_again() -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "upload", period = 60, threshold = 9, concurrency = 2, key = user)]
async fn upload(user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[expect(dead_code, reason = "they are listed, and never called")]
mod forms {
    use ratelimit_runtime::{RateLimitError, rate_limit};

    struct Plan {
        burst: Option<u32>,
    }

    #[rustfmt::skip]
    #[rate_limit(name="on one line",algorithm=token_bucket,period="1m",threshold=pick(plan.burst.unwrap_or(5),"a , b"),key=(plan.burst,"x"))]
    async fn on_one_line(plan: &Plan) -> Result<(), RateLimitError> {
        Ok(())
    }

    #[rustfmt::skip]
    #[rate_limit(
        name = "on many lines",
        algorithm = token_bucket,
        period = "1m",
        threshold = pick(
            plan
                .burst
                .unwrap_or( 5 ),
            "a , b",
        ),
        key = (
            plan . burst,
            "x",
        ),
    )]
    async fn on_many_lines(plan: &Plan) -> Result<(), RateLimitError> {
        Ok(())
    }

    fn pick(number: u32, _: &str) -> u32 {
        number
    }
}

/// The form of the source is no part of a limit's text.
#[test]
fn a_limit_on_one_line_has_the_text_of_a_formatted_one() {
    let limits = LimitList::of_program().to_string();
    let block_of = |name: &str| {
        let (_, block) = limits.split_once(&format!("{name}\n")).unwrap();
        block.split_once("\n\n").map_or(block, |(block, _)| block).to_owned()
    };
    let expected = "    algorithm: token_bucket
    tier: pick(plan.burst.unwrap_or(5),\"a , b\") per 60s
    key: plan.burst, \"x\"";
    assert_eq!(block_of("on one line"), expected);
    assert_eq!(block_of("on many lines"), expected);
}

/// Every value that comes with each call is at its place.
#[test]
fn the_text_of_a_limit_has_all_its_values() {
    let limits = LimitList::of_program().to_string();
    let expected = "
registry::mail::Mailer::send
    algorithm: sliding_window
    tier: 1 per 60s
    tier: limits.per_hour per 3600s
    key: tenant, user
    cost: recipients.count()
    dry_run: yes

registry::mail::Report::report
    algorithm: token_bucket
    tier: 10 per 60s
    burst: 3
    key: the ambient caller
";
    assert!(limits.contains(expected), "{limits}");
    let in_flight = "
upload
    algorithm: sliding_window
    tier: 9 per 60s
    concurrency: 2
    concurrency_timeout: 30s
    key: user
";
    assert!(limits.contains(in_flight), "{limits}");
    // Functions of one name whose limits differ are listed one after the other.
    assert_eq!(limits.matches("login\n").count(), 2, "{limits}");
}

fn registered(name: &str) -> RegisteredPolicy {
    let found = policies().into_iter().find(|policy| policy.name().ends_with(name));
    found.unwrap_or_else(|| panic!("{name} is not registered: {:?}", policies()))
}

#[test]
fn all_limits_of_the_program_are_listed_in_one_line_each() {
    let lines = policies().into_iter().map(|limit| limit.to_string());
    // Expressions are as written.
    let lines: Vec<_> = lines.filter(|line| !line.contains("pick")).collect();
    assert_eq!(
        lines,
        [
            "login: sliding_window, 5 per 900s, key (account)",
            "login: sliding_window, 50 per 900s, key (account)",
            "registry::mail::Mailer::send: sliding_window, by limits.per_hour, cost recipients.count(), \
         key (tenant, user), dry_run",
            "registry::mail::Report::report: token_bucket, 10 per 60s, burst 3, key of the ambient caller",
            "registry::say_hi: sliding_window, 2 per 30s, key (name)",
            "same: sliding_window, 1 per 1s, key (1), count_rejected",
            "same: sliding_window, 1 per 1s, key (2), count_rejected",
            "upload: sliding_window, 9 per 60s, 2 in flight, key (user)",
        ]
    );
}

#[test]
fn a_limit_is_listed_with_its_place_and_its_policy() {
    let say_hi = registered("say_hi");
    assert!(say_hi.file().ends_with("registry/main.rs"), "{}", say_hi.file());
    let source = include_str!("main.rs").lines().nth(say_hi.line() as usize - 1).unwrap();
    assert_eq!(source, "#[rate_limit(period = 30, threshold = 2, key = name)]");
    let policy = say_hi.policy().unwrap();
    assert_eq!(policy.algorithm(), Algorithm::SlidingWindow);
    assert_eq!(policy.tiers()[0].period(), Duration::from_secs(30));
    assert_eq!((say_hi.cost(), say_hi.key(), say_hi.is_dry_run()), ("1", &["name"][..], false));
    assert!(format!("{say_hi:?}").contains("registry/main.rs:"), "{say_hi:?}");

    let send = registered("Mailer::send");
    assert!(send.policy().is_none(), "it is made for each call");
    assert_eq!(send.dynamic_args(), ["limits.per_hour"]);
    assert!(send.is_dry_run());
}

#[test]
fn functions_of_one_name_with_different_limits_are_reported() {
    let conflicts = conflicts();
    let [(first, second)] = &conflicts[..] else { panic!("{conflicts:?}") };
    assert_eq!((first.name(), second.name()), ("login", "login"));
    assert_ne!(first.line(), second.line());
}

#[tokio::test]
async fn the_listed_name_is_the_one_that_calls_are_counted_under() {
    use mail::Report;

    let ((), answers) = ratelimit_runtime::observe(async {
        say_hi("alice".to_owned()).await.unwrap();
        mail::Mailer.report(&1).await.unwrap();
        let limits = Limits { per_hour: 7 };
        mail::Mailer.send(limits, 1, "alice", Recipients(1)).await.unwrap();
        login("alice").await.unwrap();
        login_by_token("alice").await.unwrap();
        upload("alice").await.unwrap();
        same().await.unwrap();
        same_again().await.unwrap();
    })
    .await;
    let listed: Vec<_> = policies().iter().map(RegisteredPolicy::name).collect();
    for answer in answers {
        assert!(listed.contains(&answer.unwrap().policy()));
    }
    // The only one without a key.
    let shared: Vec<_> =
        policies().into_iter().filter(RegisteredPolicy::shares_one_bucket).collect();
    let [shared] = &shared[..] else { panic!("{shared:?}") };
    assert_eq!(shared.name(), "registry::mail::Report::report");
}
