//! What the limits of a request answered, as header fields: names and values.

use std::{fmt::Write, time::Duration};

use crate::{decision::Decision, error::RateLimitError};

/// In which header fields a response tells what is left.
///
/// The fields are those of a draft of the IETF's HTTPAPI working group, and drafts move: the
/// syntaxes are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeaderSyntax {
    /// `RateLimit-Policy` and `RateLimit` as in `draft-ietf-httpapi-ratelimit-headers-11`.
    ///
    /// Lists, with an item for each policy that answered. `q` is the threshold and `w` the period
    /// in seconds, left out below one second; `r` is what remains and `t` for how many seconds it
    /// will not be more. With several tiers, a policy's item speaks of the tier that answered.
    #[default]
    Draft11,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, the last in seconds
    /// from now until the full quota is back. Of several policies, the one with the least left.
    Legacy,
    /// The fields of both.
    Both,
    /// None.
    Off,
}

const POLICY: &str = "ratelimit-policy";
const QUOTA: &str = "ratelimit";
const LEGACY_LIMIT: &str = "x-ratelimit-limit";
const LEGACY_REMAINING: &str = "x-ratelimit-remaining";
const LEGACY_RESET: &str = "x-ratelimit-reset";

impl HeaderSyntax {
    /// Every field that one of the syntaxes has, in lower case: what a response has to expose to
    /// scripts of other origins.
    pub const ALL_FIELDS: [&str; 5] = [POLICY, QUOTA, LEGACY_LIMIT, LEGACY_REMAINING, LEGACY_RESET];

    /// The header fields, as lower-case names and values, for what the limits of a request
    /// answered, in that order; of several answers of one policy, the last. Numbers a client waits
    /// on are rounded up.
    ///
    /// A name that is not ASCII is percent-encoded. No fields come of answers that are not
    /// about a quota.
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
    ///     HeaderSyntax::Draft11.fields(&[answer]),
    ///     [
    ///         ("ratelimit-policy", r#""reply";q=5;w=60"#.to_owned()),
    ///         ("ratelimit", r#""reply";r=4;t=60"#.to_owned()),
    ///     ]
    /// );
    /// # }
    /// ```
    #[must_use]
    pub fn fields(
        self,
        answers: &[Result<Decision, RateLimitError>],
    ) -> Vec<(&'static str, String)> {
        let quotas = quotas(answers);
        let mut fields = Vec::new();
        if matches!(self, Self::Draft11 | Self::Both) && !quotas.is_empty() {
            fields.push((POLICY, list(&quotas, Quota::write_policy)));
            fields.push((QUOTA, list(&quotas, Quota::write_left)));
        }
        if matches!(self, Self::Legacy | Self::Both)
            && let Some(least) = quotas.iter().min_by_key(|quota| quota.remaining)
        {
            fields.push((LEGACY_LIMIT, least.threshold.to_string()));
            fields.push((LEGACY_REMAINING, least.remaining.to_string()));
            fields.push((LEGACY_RESET, seconds(least.reset_after).to_string()));
        }
        fields
    }
}

/// A policy and what is left of it, whether the call was admitted or refused.
struct Quota {
    policy: &'static str,
    threshold: u32,
    period: Duration,
    remaining: u32,
    /// How long no more than `remaining` can be had.
    window: Duration,
    reset_after: Duration,
}

impl Quota {
    fn of(answer: &Result<Decision, RateLimitError>) -> Option<Self> {
        match answer {
            Ok(decision) => Some(Self {
                policy: decision.policy(),
                threshold: decision.threshold(),
                period: decision.period(),
                remaining: decision.remaining(),
                window: decision.replenish_after(),
                reset_after: decision.reset_after(),
            }),
            Err(RateLimitError::Exceeded(exceeded)) => Some(Self {
                policy: exceeded.policy(),
                threshold: exceeded.threshold(),
                period: exceeded.period(),
                remaining: exceeded.remaining(),
                window: exceeded.retry_after(),
                reset_after: exceeded.reset_after(),
            }),
            Err(_) => None,
        }
    }

    fn write_policy(&self, list: &mut String) {
        let _ = write!(list, ";q={}", self.threshold);
        // `w` has whole seconds: what is shorter than one would be told far too long.
        if self.period >= Duration::from_secs(1) {
            let _ = write!(list, ";w={}", seconds(self.period));
        }
    }

    fn write_left(&self, list: &mut String) {
        let _ = write!(list, ";r={}", self.remaining);
        if !self.window.is_zero() {
            let _ = write!(list, ";t={}", seconds(self.window));
        }
    }
}

/// One for each policy, in the order of their first answers.
fn quotas(answers: &[Result<Decision, RateLimitError>]) -> Vec<Quota> {
    let mut quotas: Vec<Quota> = Vec::new();
    for quota in answers.iter().filter_map(Quota::of) {
        match quotas.iter_mut().find(|known| known.policy == quota.policy) {
            Some(known) => *known = quota,
            None => quotas.push(quota),
        }
    }
    quotas
}

/// A list of strings with parameters (RFC 9651).
fn list(quotas: &[Quota], write_parameters: impl Fn(&Quota, &mut String)) -> String {
    let mut list = String::new();
    for quota in quotas {
        if !list.is_empty() {
            list.push_str(", ");
        }
        list.push('"');
        for character in wire_name(quota.policy).chars() {
            if matches!(character, '"' | '\\') {
                list.push('\\');
            }
            list.push(character);
        }
        list.push('"');
        write_parameters(quota, &mut list);
    }
    list
}

/// A policy's name as clients see it: what a string of a header field cannot hold is
/// percent-encoded, and so is the percent sign.
pub(crate) fn wire_name(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// Whole seconds, rounded up.
pub(crate) fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}
