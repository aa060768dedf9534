//! Functions of every kind compile without a warning.
#![deny(
    warnings,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    unused,
    future_incompatible,
    rust_2018_idioms,
    missing_docs,
    unused_qualifications
)]
#![forbid(unreachable_code, unused_variables, clippy::diverging_sub_expression)]
#![allow(clippy::missing_errors_doc, reason = "they are all alike here")]
#![allow(clippy::redundant_pub_crate, reason = "`unreachable_pub` asks for the contrary")]

use std::{fmt::Display, sync::Arc};

use ratelimit_runtime::{Caller, FromRejection, Limiter, RateLimitError, caller, rate_limit};

/// Defaults.
#[rate_limit]
pub async fn bare() -> Result<(), RateLimitError> {
    Ok(())
}

/// The body moves what the key borrows.
#[rate_limit(period = 30, threshold = 2, key = name)]
pub async fn moved(name: String) -> Result<String, RateLimitError> {
    Ok(name)
}

/// A caller is a part, the ambient one and one that is passed.
#[rate_limit(key = (caller::current(), tenant, account))]
pub async fn by_callers(tenant: &Caller, account: Option<Caller>) -> Result<(), RateLimitError> {
    let _ = (tenant, account);
    Ok(())
}

/// Generics, `where`, lifetimes, `impl Trait` on both sides.
///
/// # Errors
///
/// The refusal.
#[rate_limit(key = (id, tag))]
pub async fn generic<'a, T, const N: usize>(
    id: T,
    tag: &'a str,
    values: [u8; N],
    _more: impl Display + Send,
) -> Result<impl Display, RateLimitError>
where
    T: Display + Send + 'a,
{
    Ok(format!("{id}{tag}{}", values.len()))
}

/// `?`, `return` and inner attributes work as without the attribute.
///
/// # Errors
///
/// As it comes.
#[rate_limit]
pub async fn early(text: &str) -> Result<u32, Box<dyn std::error::Error + Send + Sync>> {
    #![allow(clippy::needless_return)]
    let number: u32 = text.parse()?;
    if number > 5 {
        return Ok(5);
    }
    return Ok(number);
}

/// Methods.
pub struct Service {
    limiter: Limiter,
}

impl Service {
    #[rate_limit(limiter = self.limiter, key = user)]
    async fn by_reference(&self, user: Option<u64>) -> Result<(), RateLimitError> {
        let _ = user;
        Ok(())
    }

    #[rate_limit(limiter = self.limiter)]
    async fn by_arc(self: Arc<Self>) -> Result<(), RateLimitError> {
        let _: Limiter = self.limiter.clone();
        Ok(())
    }

    #[rate_limit]
    async fn by_value(mut self) -> Result<Self, RateLimitError> {
        self.limiter = Limiter::in_memory();
        Ok(self)
    }
}

/// A return type of one's own.
pub enum Reply {
    /// Served.
    Served,
    /// Refused.
    Refused,
}

impl FromRejection for Reply {
    fn from_rejection(_: RateLimitError) -> Self {
        Self::Refused
    }
}

/// Without a `Result`.
#[rate_limit]
pub async fn reply() -> Reply {
    Reply::Served
}

/// Every value from an expression, and both forms of a flag's absence.
#[rate_limit(
    tier(period = plan.0, threshold = plan.1),
    tier(period = "1d", threshold = plan.1 * 100),
    key = (plan.1, text.trim()),
    cost = u32::try_from(text.len()).unwrap_or(u32::MAX),
    skip = text.is_empty(),
    algorithm = sliding_window,
    dry_run
)]
pub async fn expressions(
    plan: (std::time::Duration, u32),
    text: String,
) -> Result<String, RateLimitError> {
    Ok(text)
}

/// A bucket, and a penalty.
#[rate_limit(
    algorithm = token_bucket,
    period = "1s",
    threshold = 10,
    burst = burst,
    count_rejected,
    key = burst
)]
pub async fn paced(burst: u32) -> Result<(), RateLimitError> {
    Ok(())
}

/// The decision has the name of a keyword.
///
/// # Errors
///
/// The refusal.
#[rate_limit(decision = r#try, settle = |_| 1_u32)]
pub async fn keyword() -> Result<u32, RateLimitError> {
    Ok(r#try.remaining())
}

/// A refused call never returns.
#[rate_limit(otherwise = |error| panic!("{error}"))]
pub async fn panics() -> u32 {
    1
}

/// No call returns.
#[rate_limit(otherwise = panic!("refused"))]
pub async fn never_returns() -> ! {
    std::future::pending().await
}

/// No admitted call returns.
#[rate_limit(fallible)]
pub async fn serves() -> std::convert::Infallible {
    loop {
        std::future::pending::<()>().await;
    }
}

/// Values that begin as a statement does.
#[rate_limit(otherwise = if n > 3 { 1 } else { 2 } + n)]
pub async fn sum(n: u64) -> u64 {
    n
}

/// The same with an error.
#[rate_limit(otherwise = |_| match n { 0 => 1, n => n } * 2)]
pub async fn product(n: u64) -> u64 {
    n
}

/// The value of a refused call becomes the return type.
#[rate_limit(otherwise = Box::new("busy"))]
pub async fn coerced() -> Box<dyn Display> {
    Box::new(1)
}

/// The return type is the one of both values.
#[rate_limit(otherwise = String::from("busy"))]
pub async fn hidden() -> impl Display {
    String::new()
}

fn assert_send<T: Send>(_: T) {}

/// Names of a body do not reach the prologue, nor the other way round.
mod hygiene {
    #![no_implicit_prelude]

    struct Here;
    const SITE: u8 = 1;

    #[::ratelimit_runtime::rate_limit(key = SITE)]
    pub(super) async fn shadowed() -> ::std::result::Result<u8, ::ratelimit_runtime::RateLimitError>
    {
        use ::std::result::Result::Ok;
        #[allow(dead_code, non_snake_case)]
        const fn Err() {}
        #[allow(dead_code)]
        struct Result;
        let _ = Here;
        Ok(SITE)
    }
}

/// Constants, statics and types with the names of what the attribute binds: a pattern would be one of
/// them, and an argument names one.
#[allow(non_upper_case_globals, non_camel_case_types, dead_code)]
mod constants {
    use std::time::Duration;

    use ratelimit_runtime::{Plans, Policy, RateLimitError, rate_limit};

    const __ratelimit: u8 = 1;
    const __ratelimit_call: u8 = 1;
    static __ratelimit_checked: u8 = 1;
    struct __ratelimit_answer;

    #[rate_limit(key = (__ratelimit, __ratelimit_call, __ratelimit_checked))]
    pub(super) async fn named() -> Result<u8, RateLimitError> {
        let __ratelimit_answer = __ratelimit_answer;
        Ok(__ratelimit)
    }

    const policy: Policy = Policy::sliding_window("free", Duration::from_secs(60), 1);
    const plan: Plans = Plans::new("plans", "free", policy);

    #[rate_limit(policy = plan, plan = "free", request_id = 1)]
    pub(super) async fn by_plan() -> Result<(), RateLimitError> {
        Ok(())
    }

    macro_rules! limited {
        ($name:ident, $constant:ident) => {
            const $constant: u32 = 5;
            const __ratelimit_refusal: u32 = 5;

            #[rate_limit(threshold = $constant, key = $constant)]
            pub(super) async fn $name() -> Result<u8, RateLimitError> {
                Ok(__ratelimit)
            }
        };
    }

    limited!(by_macro, __ratelimit_policy);
}

/// The runtime under another name.
mod renamed {
    use ratelimit_runtime as limits;

    #[limits::rate_limit(crate = limits)]
    pub(super) async fn by_path() -> Result<(), limits::RateLimitError> {
        Ok(())
    }
}

fn main() {
    assert_send(bare());
    assert_send(moved(String::new()));
    assert_send(generic(1, "", [0; 3], 2));
    assert_send(early("1"));
    let service = Arc::new(Service { limiter: Limiter::in_memory() });
    assert_send(service.by_reference(None));
    assert_send(Arc::clone(&service).by_arc());
    drop(Service { limiter: Limiter::in_memory() }.by_value());
    drop(reply());
    drop((panics(), never_returns(), serves(), coerced(), hidden()));
    drop(keyword());
    drop(hygiene::shadowed());
    drop(renamed::by_path());
    drop((constants::named(), constants::by_macro(), constants::by_plan()));
}
