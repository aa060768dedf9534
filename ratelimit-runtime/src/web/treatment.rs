//! The treatment of responses to requests with a refused call, decided once for all frameworks.

use std::{collections::BTreeSet, mem};

use parking_lot::Mutex;

use super::{
    refusal::Refusal,
    response::{ResponseParts, ResponseSettings, set_headers},
};
use crate::{error::RateLimitError, observe::Observation};

/// The responses that a layer replaces by its own.
#[derive(Clone, Copy, Default)]
pub(super) struct Replaced {
    /// `true` for responses that this crate has made of a refusal.
    pub(super) made: bool,
    /// `true` for responses that have lost the refusal.
    pub(super) lost: bool,
}

impl Replaced {
    /// Treats the response to a request whose calls were observed. Returns the refusal that the
    /// layer responds to itself, if it does. A response that stays gets what it lacks of the
    /// refusal.
    pub(super) fn treat(
        self,
        response: &mut impl ResponseParts,
        reply: ResponseSettings,
        observed: &mut Observation,
    ) -> Option<Refusal> {
        if let Some(error) = response.made_of() {
            return self.made.then(|| error.into());
        }
        let error = observed.refused.take()?;
        let status = response.http_status();
        let refusal = Refusal::from(error.clone());
        let is_own = refusal.status() == status;
        let has_content_type = response.header("content-type").is_some();
        let is_lost = if is_own { !has_content_type } else { status >= 500 };
        if is_lost && self.lost {
            return Some(refusal);
        }
        // A 429 is an answer to a refusal, also of another kind.
        if !is_own && status >= 400 && status != 429 {
            warn_once(error.policy(), status);
        }
        add_refusal(response, reply, error, observed);
        None
    }
}

/// Adds those of a refusal's headers that a 429 or 503 lacks, and lists the refusal among the
/// answers that it shows.
fn add_refusal(
    response: &mut impl ResponseParts,
    reply: ResponseSettings,
    error: RateLimitError,
    observed: &mut Observation,
) {
    // An identity layer further out warns of a refusal that another status hides.
    if matches!(response.http_status(), 429 | 503) {
        if !observed.answers.is_empty() {
            observed.answers.push(Err(error.clone()));
        }
        reply.complete(response, error.into());
    }
}

/// Sets the headers of a response that a gate has let through. A refused call behind the gate is
/// among them, also one of another caller: the response is about it.
pub(super) fn complete(
    response: &mut impl ResponseParts,
    reply: ResponseSettings,
    observed: &mut Observation,
) {
    if response.made_of().is_none()
        && let Some(error) = observed.refused.take()
    {
        add_refusal(response, reply, error, observed);
    }
    set_headers(response, reply, mem::take(&mut observed.answers));
}

/// Logs that the refusals of a limit are lost, once for each limit.
fn warn_once(policy: &'static str, status: u16) {
    static WARNED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    if WARNED.lock().insert(policy) {
        let layer = if status >= 500 {
            "add `.answer_refusals()` to the identity layer"
        } else {
            "answer a `RateLimitError` with its own status where the error becomes a response"
        };
        tracing::warn!(
            policy,
            status,
            "a call that the limit `{policy}` refused ended with status {status}: implement \
             `From<RateLimitError>` or `FromRejection` for what the handler returns, or {layer}"
        );
    }
}
