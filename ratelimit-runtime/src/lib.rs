// The links of the README, which are paths in the repository there; and its first lines, up to the
// picture, are left out.
//! [attribute]: macro@rate_limit
//! [callers]: guide::callers
//! [comparison]: guide::comparison
//! [cookbook]: guide::cookbook
//! [examples]: guide::cookbook#whole-programs
//! [guide]: guide
//! [tutorial]: guide::tutorial
//!
//! <!--
#![doc = include_str!("../README.md")]
//!
//! # The path of a call
//!
//! The items of this crate, in the order in which a call uses them:
//!
//! 1. [`macro@rate_limit`] puts one call into this crate before the body of a function.
//!    [`Limiter::check`] makes the same [`Check`] by hand.
//! 2. [`Policy`] is the limit: a name, an algorithm, and 1 to 8 tiers.
//! 3. [`Caller`] is the identity that is counted. With the name and the algorithm it makes the key.
//! 4. [`Overrides`] change the policy or its [`Enforcement`] at run time.
//! 5. [`Limiter`] decides in its backend: in memory, or by one script on Redis.
//! 6. [`OnStoreError`] is the answer if Redis cannot decide in time.
//! 7. A [`Decision`] describes an admitted call and the remaining quota, a [`RateLimitError`] a
//!    refused one.
//! 8. [`FromRejection`] converts the error into the return value of the function.
//!
//! Around it:
//!
//! - [`observe`] returns the decisions and errors of all checks inside a future.
//! - [`limits`] lists the limits of the whole program, and [`stats`] counts their calls.
//! - [`usage`] shows what a caller has left.
#![cfg_attr(feature = "replay", doc = "- [`replay`] decides recorded calls under another policy.")]
#![cfg_attr(
    feature = "web",
    doc = "- [`web`] finds the caller in a request, and converts answers into headers and responses."
)]
//!
//! # Guide
//!
//! The [`guide`] has a page for each task. Its table lists them in the order in which a service
//! needs them.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Without a client, errors and telemetry of Redis have no use.
#![cfg_attr(not(feature = "redis"), allow(dead_code, unused_imports))]

// "Floor N" in a module's first lines is its level in `ci/floors`: imports point to the same floor
// or to lower ones, never up.
mod algorithms;
#[cfg(feature = "redis")]
mod background;
#[cfg(not(feature = "redis"))]
#[path = "background/disabled.rs"]
mod background;
mod calendar;
pub mod caller;
mod callsite;
mod decision;
mod error;
#[cfg(all(test, not(ratelimit_loom)))]
#[path = "../../tests/models/explore.rs"]
mod explore;
#[cfg(any(feature = "overrides", feature = "web"))]
mod follow;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[cfg(any(doc, test))]
pub mod guide;
mod key;
mod limiter;
mod macro_support;
mod memory;
mod observe;
mod opaque;
pub mod overrides;
mod policy;
#[cfg(feature = "redis")]
mod redis;
#[cfg(not(feature = "redis"))]
#[path = "redis/disabled.rs"]
mod redis;
mod registry;
mod rejection;
#[cfg(feature = "replay")]
pub mod replay;
mod request;
mod sync;
mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
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
    pub(crate) mod captured_events;
    pub(crate) mod model;
    pub(crate) mod schedule;
}

#[cfg(feature = "redis")]
pub use self::redis::Credentials;
#[cfg(feature = "tower")]
pub use self::web::client;
pub use decision::{Decision, Meter};
pub use error::{
    AlreadyInstalled, Busy, ConnectError, Denied, Exceeded, FlushError, RateLimitError,
    ServerStatus, Unavailable, UnavailableReason,
};
pub use key::{Caller, IntoCaller};
pub use limiter::{
    Check, CheckFuture, LimitRef, Limiter, LimiterBuilder, Warning, install, limiter,
};
// Compile errors name them, by this short path.
#[doc(hidden)]
pub use macro_support::{KeyPart, Units};
pub use observe::observe;
#[doc(inline)]
pub use overrides::{Enforcement, Override, Overrides};
pub use policy::{
    InvalidPolicy, LocalShare, OnStoreError, Plans, Policy, QuotaUnit, Tier, TooLarge,
};
pub use ratelimit_core::{Algorithm, CalendarUnit, MAX_TIERS};
#[cfg_attr(doc, doc = ratelimit_macros::page!("src/attribute.md"))]
#[cfg_attr(not(doc), doc = include_str!("attribute.md"))]
pub use ratelimit_macros::rate_limit;
pub use rejection::FromRejection;
pub use request::DecidedBy;
pub use telemetry::stats;

/// The counts of all processes of a service, as each reports them on Redis: [`Limiter::fleet`].
#[cfg(feature = "overrides")]
pub mod fleet {
    pub use crate::overrides::fleet::{
        FleetCaller, FleetError, FleetLimit, FleetProcess, FleetStatus, process_name,
    };
}

/// The limits of a program: lists for operators, clients and reviews, and conflicts among them.
pub mod limits {
    #[cfg(feature = "testing")]
    pub use crate::registry::{ChangeKind, LimitChange, LimitList};
    pub use crate::registry::{
        PublishedLimit, PublishedTier, RegisteredPolicy, conflicts, policies, policies_by_hand,
        policies_of, published_limits,
    };
}

/// The use that callers make of limits: [`Limiter::usage`] and [`Limiter::refused_callers`].
pub mod usage {
    pub use crate::limiter::{LimitUsage, RefusedCaller, TierUsage, UsageError};
}

/// The items that generated code may name. They change with the attribute: do not use them.
#[doc(hidden)]
pub mod __private {
    pub use crate::__half_typed as half_typed;
    pub use crate::macro_support::*;
    #[cfg(feature = "testing")]
    pub use crate::registry::assert_locked;
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
