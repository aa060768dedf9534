#![doc = include_str!("../README.md")]
//!
//! # The path of a call
//!
//! The items of this crate, in the order in which a call uses them:
//!
//! 1. [`macro@rate_limit`] puts one call into this crate before the body of a function. [`Limiter::check`]
//!    makes the same [`Check`] by hand.
//! 2. [`Policy`] is the limit: a name, an algorithm, and 1 to 8 tiers.
//! 3. [`Caller`] is the identity that is counted. With the name and the algorithm it makes the key.
//! 4. [`Overrides`] change the policy or its [`Enforcement`] at run time.
//! 5. [`Limiter`] decides in its backend: in memory, or by one script on Redis.
//! 6. [`OnStoreError`] is the answer if Redis cannot decide in time.
//! 7. A [`Decision`] describes an admitted call and the remaining quota, a [`RateLimitError`] a refused one.
//! 8. [`FromRejection`] converts the error into the return value of the function.
//!
//! Around it:
//!
//! - [`observe`] returns the decisions and errors of all checks inside a future.
//! - [`policies`] lists the limits of the whole program, and [`stats`] counts their calls.
#![cfg_attr(
    feature = "web",
    doc = "- [`web`] finds the caller in a request, and converts answers into headers and responses."
)]
//!
//! # Guide
//!
//! The [`guide`] has a page for each subject:
//!
//! - the [pipeline](guide::pipeline), step by step,
//! - [algorithms](guide::algorithms), tiers and plans,
//! - [metering](guide::metering) of tokens, rows and bytes,
//! - the [identity](guide::identity) of callers, also behind proxies,
//! - [layers](guide::layers) in front of handlers, and [clients](guide::clients) that read their answers,
//! - [tests](guide::testing) of limits without sleeping,
//! - [security](guide::security),
//! - [operating](guide::operating) limits, and [overrides](guide::overrides) at run time,
//! - [admin pages](guide::admin) and tools of your own,
//! - setting up [Redis](guide::redis), and its [failures](guide::failures),
//! - the [capacity](guide::capacity) of both stores, measured,
//! - a [comparison](guide::comparison) with other crates, and [migration](guide::migration) from them.
// Without a client, errors and telemetry of Redis have no use.
#![cfg_attr(not(feature = "redis"), allow(dead_code))]

// "Floor N" in a module's first lines is its level in `ci/floors`: imports point to the same floor or
// to lower ones, never up.
mod algorithms;
pub mod caller;
mod callsite;
mod decision;
mod error;
#[cfg(any(feature = "overrides", feature = "web"))]
mod follow;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod guide;
mod key;
mod limiter;
mod macro_support;
mod memory;
mod observe;
mod overrides;
mod policy;
#[cfg(feature = "redis")]
mod redis;
#[cfg(not(feature = "redis"))]
#[path = "redis/disabled.rs"]
mod redis;
mod registry;
mod rejection;
mod request;
mod sync;
mod telemetry;
mod time;
#[cfg(feature = "web")]
pub mod web;

// The model and its schedules, by which the memory store is tested. They name this crate.
#[cfg(test)]
extern crate self as ratelimit_runtime;
#[cfg(test)]
#[path = "../../tests/harness"]
#[expect(dead_code, unreachable_pub, unused_imports, reason = "parts that other tests need")]
mod harness {
    pub(crate) mod model;
    pub(crate) mod schedule;
}

#[cfg(feature = "redis")]
pub use self::redis::Credentials;
pub use caller::{Caller, IntoCaller};
pub use decision::{Decision, Meter};
pub use error::{
    AlreadyInstalled, Busy, ConnectError, Exceeded, FlushError, RateLimitError, Unavailable,
    UnavailableReason,
};
pub use limiter::{
    Check, CheckFuture, LimitRef, LimitUsage, Limiter, LimiterBuilder, ServerStatus, TierUsage,
    URL_VARIABLE, UsageError, install, limiter,
};
pub use macro_support::{KeyPart, Units};
pub use observe::observe;
pub use overrides::{
    Enforcement, Override, OverrideError, OverrideProblem, OverrideSource, Overrides,
};
pub use policy::{InvalidPolicy, Policy, Tier, TooLarge};
pub use ratelimit_core::{Algorithm, MAX_TIERS, PolicyFault};
#[doc = include_str!("attribute.md")]
pub use ratelimit_macros::rate_limit;
pub use registry::{RegisteredPolicy, conflicts, policies, policies_of};
pub use rejection::FromRejection;
pub use request::{DecidedBy, OnStoreError};
pub use telemetry::stats;

/// The items that generated code may name. They change with the attribute: do not use them.
#[doc(hidden)]
pub mod __private {
    pub use crate::__half_typed as half_typed;
    pub use crate::macro_support::*;
}

/// The values of an attribute with an error, which editors complete in and `rustc` does not see.
#[cfg(not(rust_analyzer))]
#[doc(hidden)]
#[macro_export]
macro_rules! __half_typed {
    ($($statements:tt)*) => {};
}

/// The values of an attribute with an error, in a branch that is never taken.
#[cfg(rust_analyzer)]
#[doc(hidden)]
#[macro_export]
macro_rules! __half_typed {
    ($($statements:tt)*) => {
        if false {
            $($statements)*
        }
    };
}
