//! Rate limit headers: names and values, from the answers of a request's limits. Pure.

use std::{
    cmp::Reverse,
    fmt::Write,
    time::{Duration, SystemTime},
};

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::{
    decision::Decision,
    error::{Busy, RateLimitError},
    policy::QuotaUnit,
};

/// The syntax of the headers with the remaining quota.
///
/// The IETF's HTTPAPI working group drafts a standard. Drafts change, so a variant names its draft.
/// Draft 11 expired on 24 November 2026 without a successor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeaderSyntax {
    /// `RateLimit-Policy` and `RateLimit` as in `draft-ietf-httpapi-ratelimit-headers-11`.
    ///
    /// Lists, with an item for each policy that answered:
    ///
    /// - `q` is the quota: the threshold, or the burst of a token bucket,
    /// - `qu` is the [unit](crate::QuotaUnit) of the quota, left out for requests,
    /// - `w` is its window in seconds, left out below one second: the period, or the time in which
    ///   an empty bucket fills,
    /// - `r` is the remaining quota, and `t` the seconds until there is more,
    /// - `qu="concurrent-requests"` marks calls in flight, which have neither `w` nor `t`. If the
    ///   policy has a window too, their item has a name of its own: `feed-in-flight` for the policy
    ///   `feed`.
    ///
    /// With several tiers, an item describes the tier of the answer's numbers. Exhausted policies
    /// stand first, the one with the longest wait before all: `huggingface_hub` reads the first
    /// item alone, and only if the policy's name consists of letters, digits and `_`.
    #[default]
    Draft11,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`: the `q`, `r` and `t`
    /// of one policy, the last in seconds from now on. Of several, it is the one that refused, or
    /// else the one with the least left.
    ///
    /// Some clients read `RateLimit` by an older draft only. The npm package
    /// `ratelimit-header-parser` makes `NaN` of the current one, also under [`Both`](Self::Both),
    /// and reads these headers.
    Legacy,
    /// The same, with `X-RateLimit-Reset` in seconds since 1970, as GitHub and Express send it.
    LegacyEpoch,
    /// The headers of [`Draft11`](Self::Draft11) and [`Legacy`](Self::Legacy).
    ///
    /// Under all of these, a refusal also has `X-RateLimit-Scope`: `user` if the limit is the
    /// caller's own, `shared` if [several clients](crate::Exceeded::is_shared) share it. Discord's
    /// API has the same field.
    Both,
    /// None.
    Off,
}

/// The header with the wait in whole seconds.
pub(super) const RETRY_AFTER: &str = "retry-after";

/// The header with the exact wait, which SDKs of language models read first.
pub(super) const RETRY_AFTER_MS: &str = "retry-after-ms";

const POLICY: &str = "ratelimit-policy";
const QUOTA: &str = "ratelimit";
const LEGACY_LIMIT: &str = "x-ratelimit-limit";
const LEGACY_REMAINING: &str = "x-ratelimit-remaining";
const LEGACY_RESET: &str = "x-ratelimit-reset";
const SCOPE: &str = "x-ratelimit-scope";

/// The headers that a service has to expose to scripts of other origins, in lower case: those of
/// [all syntaxes](HeaderSyntax::ALL), and the waits of a [`Refusal`](super::Refusal).
///
/// ```
/// # #[cfg(feature = "tower")] {
/// let names = ratelimit_runtime::web::EXPOSED_HEADERS.map(http::HeaderName::from_static);
/// # assert_eq!(names[0], "retry-after");
/// # }
/// // For tower-http: `CorsLayer::new().expose_headers(names)`, outside of the layers of this crate.
/// ```
pub const EXPOSED_HEADERS: [&str; 8] = {
    let [policy, quota, limit, remaining, reset, scope] = HeaderSyntax::ALL;
    [RETRY_AFTER, RETRY_AFTER_MS, policy, quota, limit, remaining, reset, scope]
};

impl HeaderSyntax {
    /// The names of all headers of all syntaxes, in lower case. [`EXPOSED_HEADERS`] has them too.
    pub const ALL: [&str; 6] = [POLICY, QUOTA, LEGACY_LIMIT, LEGACY_REMAINING, LEGACY_RESET, SCOPE];

    /// Returns the headers for the answers of a request's limits, as lower-case names and values.
    ///
    /// Exhausted policies stand first. All others have the order of their first answers; the last
    /// answer of each counts. Seconds to wait are rounded up. A policy name that is not ASCII is
    /// percent-encoded. Answers without a quota, such as [`Unavailable`](crate::Unavailable), make
    /// no headers.
    ///
    /// The layers pass no answers of a [dry run](crate::Enforcement::DryRun): a client that heeds
    /// them would hold back calls that the limit lets pass.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy, web::HeaderSyntax};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// const REPLY: Policy = Policy::sliding_window("reply", Duration::from_secs(60), 5);
    /// let answer = Limiter::in_memory().check(&REPLY, "harry").await;
    /// assert_eq!(
    ///     HeaderSyntax::Draft11.headers(&[answer]),
    ///     [
    ///         ("ratelimit-policy", r#""reply";q=5;w=60"#.to_owned()),
    ///         ("ratelimit", r#""reply";r=4;t=60"#.to_owned()),
    ///     ]
    /// );
    /// # }
    /// ```
    #[must_use]
    pub fn headers(
        self,
        answers: &[Result<Decision, RateLimitError>],
    ) -> Vec<(&'static str, String)> {
        let quotas = quotas(answers);
        let mut headers = Vec::new();
        if matches!(self, Self::Draft11 | Self::Both) && !quotas.is_empty() {
            headers.push((POLICY, list(&quotas, Quota::write_policy)));
            headers.push((QUOTA, list(&quotas, Quota::write_remaining)));
        }
        if matches!(self, Self::Legacy | Self::LegacyEpoch | Self::Both)
            // These fields have room for one limit: the one that refuses, else the one with the
            // least left.
            && let Some(one) =
                quotas.iter().min_by_key(|it| (it.refused_by.is_none(), it.remaining))
        {
            headers.push((LEGACY_LIMIT, one.units.to_string()));
            headers.push((LEGACY_REMAINING, one.remaining.to_string()));
            if one.window.is_some() {
                let epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
                let from = if self == Self::LegacyEpoch { epoch } else { Duration::ZERO };
                headers.push((LEGACY_RESET, seconds(from + one.wait).to_string()));
            }
        }
        if self != Self::Off
            && let Some(scope) = quotas.iter().find_map(|quota| quota.refused_by)
        {
            headers.push((SCOPE, scope.to_owned()));
        }
        headers
    }
}

/// Returns the scope of a limit that refused, as clients are told it.
pub(super) fn scope(is_shared: bool) -> &'static str {
    if is_shared { "shared" } else { "user" }
}

/// The quota of one policy after an admitted or refused call.
struct Quota {
    name: String,
    /// The scope of the limit, if it refused.
    refused_by: Option<&'static str>,
    units: u32,
    unit: QuotaUnit,
    /// The time in which the units are allotted. Calls in flight have none: a permit is free at any
    /// time.
    window: Option<Duration>,
    remaining: u32,
    /// The time until more than `remaining` units are available.
    wait: Duration,
}

impl Quota {
    fn of(answer: &Result<Decision, RateLimitError>) -> Option<Self> {
        match answer {
            Ok(decision) => Some(Self {
                name: wire_name(decision.shown_name()),
                refused_by: None,
                units: decision.quota(),
                unit: decision.unit(),
                window: window(decision.quota(), decision.threshold(), decision.period()),
                remaining: decision.remaining(),
                wait: decision.replenish_after(),
            }),
            Err(RateLimitError::Exceeded(exceeded)) => Some(Self {
                name: wire_name(exceeded.shown_name()),
                refused_by: Some(scope(exceeded.is_shared())),
                units: exceeded.quota(),
                unit: exceeded.unit(),
                window: window(exceeded.quota(), exceeded.threshold(), exceeded.period()),
                remaining: exceeded.remaining(),
                wait: exceeded.retry_after(),
            }),
            Err(RateLimitError::Busy(busy)) => Some(Self {
                name: name_in_flight(busy),
                refused_by: Some(scope(busy.is_shared())),
                units: busy.max_concurrency(),
                unit: QuotaUnit::Requests,
                window: None,
                remaining: 0,
                wait: Duration::ZERO,
            }),
            Err(_) => None,
        }
    }

    /// Returns `true` if the policy refuses calls of this cost.
    fn is_exhausted(&self) -> bool {
        self.refused_by.is_some() || self.remaining == 0
    }

    fn write_policy(&self, list: &mut String) {
        let _ = write!(list, ";q={}", self.units);
        if self.window.is_some() && self.unit != QuotaUnit::Requests {
            let _ = write!(list, ";qu=\"{}\"", self.unit.as_str());
        }
        match self.window {
            None => list.push_str(";qu=\"concurrent-requests\""),
            // `w` has whole seconds: a shorter window would be rounded up far too much.
            Some(window) if window < Duration::from_secs(1) => {}
            Some(window) => {
                let _ = write!(list, ";w={}", seconds(window));
            }
        }
    }

    fn write_remaining(&self, list: &mut String) {
        let _ = write!(list, ";r={}", self.remaining);
        if !self.wait.is_zero() {
            let _ = write!(list, ";t={}", seconds(self.wait));
        }
    }
}

/// Returns the time in which `quota` units are allotted, at a rate of `threshold` for each
/// `period`; `None` without a period. It is another one than the period for a token bucket with a
/// burst.
fn window(quota: u32, threshold: u32, period: Duration) -> Option<Duration> {
    if period.is_zero() {
        return None;
    }
    let micros = period.as_micros() * u128::from(quota) / u128::from(threshold.max(1));
    Some(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
}

/// Returns one quota for each item: those that are exhausted by their waits, and then the others in
/// the order of their first answers.
fn quotas(answers: &[Result<Decision, RateLimitError>]) -> Vec<Quota> {
    let mut quotas: Vec<Quota> = Vec::new();
    for quota in answers.iter().filter_map(Quota::of) {
        match quotas.iter_mut().find(|known| known.name == quota.name) {
            // The later answer of a limit has its present numbers.
            Some(known) => *known = quota,
            None => quotas.push(quota),
        }
    }
    quotas.sort_by_key(|it| Reverse(it.is_exhausted().then_some(it.wait)));
    quotas
}

/// Returns the time until the last of the policies without units has some again.
#[cfg(any(feature = "actix", feature = "tower"))]
pub(super) fn exhausted_for(answers: &[Result<Decision, RateLimitError>]) -> Duration {
    let exhausted = quotas(answers).into_iter().filter(|quota| quota.remaining == 0);
    exhausted.map(|quota| quota.wait).max().unwrap_or_default()
}

/// Formats a list of strings with parameters (RFC 9651).
fn list(quotas: &[Quota], write_parameters: impl Fn(&Quota, &mut String)) -> String {
    let mut list = String::new();
    for quota in quotas {
        list.push_str(if list.is_empty() { "" } else { ", " });
        push_quoted(&mut list, &quota.name);
        write_parameters(quota, &mut list);
    }
    list
}

/// Appends a string in quotes (RFC 8259, section 7). A [`wire_name`] has the same form in RFC 9651.
pub(super) fn push_quoted(to: &mut String, text: &str) {
    to.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => to.extend(['\\', character]),
            '\0'..='\x1f' => {
                let _ = write!(to, "\\u{:04x}", u32::from(character));
            }
            _ => to.push(character),
        }
    }
    to.push('"');
}

/// Returns the name for clients of a policy's calls in flight. Its window has the policy's own.
pub(crate) fn name_in_flight(busy: &Busy) -> String {
    wire_name(busy.shown_name()) + if busy.has_window() { "-in-flight" } else { "" }
}

/// Returns a policy's name for clients. Characters that a header's string cannot contain are
/// percent-encoded, and so is the percent sign.
pub(crate) fn wire_name(name: &str) -> String {
    const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

    utf8_percent_encode(name, ENCODED).collect()
}

/// Returns whole seconds, rounded up.
pub(crate) fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}
