#![doc = include_str!("../README.md")]
//!
//! # How a call is decided
//!
//! In this order:
//!
//! - [`macro@rate_limit`] puts one call into this crate in front of the function's body.
//! - [`Policy`] says what the limit is: a name, an algorithm, one or more tiers.
//! - [`Overrides`] say what holds instead of what is written, while the program runs.
//! - [`caller`] says who is calling; name and caller make one key.
//! - [`Limiter`] has its store decide: in memory, or one script on Redis.
//! - [`OnStoreError`] says what a call gets when Redis cannot decide in time.
//! - A [`Decision`] tells what is left; a [`RateLimitError`] why there is none.
//! - [`observe`] shows the decisions of annotated functions to the code around them.
//! - [`FromRejection`] makes the error the function's return value.
//!
//! Beside it:
//!
//! - [`policies`] lists the limits of the whole program.
#![cfg_attr(
    feature = "web",
    doc = "- [`web`] finds the caller in a request, and makes the answers header fields and responses."
)]
//!
//! # Further on
//!
//! The pages of the [`guide`]: how a call is [decided](guide::pipeline), which [algorithm](guide::algorithms), with
//! tiers and plans, [who is counted](guide::identity), also behind proxies, how to [test](guide::testing) limits without
//! sleeping, [security](guide::security), [operating](guide::operating) limits and changing them while they hold, setting
//! up [Redis](guide::redis), what happens when it [fails](guide::failures), what it [costs](guide::capacity), and what
//! [others](guide::comparison) do better.

mod algorithms;
pub mod caller;
mod callsite;
mod decision;
mod error;
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
mod redis;
mod registry;
mod rejection;
mod request;
mod sync;
mod telemetry;
mod time;
#[cfg(feature = "web")]
pub mod web;

pub use caller::Caller;
pub use decision::Decision;
pub use error::{
    AlreadyInstalled, ConnectError, Exceeded, RateLimitError, Unavailable, UnavailableReason,
};
pub use limiter::{
    Check, CheckFuture, Limiter, LimiterBuilder, ServerStatus, URL_VARIABLE, install, limiter,
};
pub use macro_support::{KeyPart, Units};
pub use observe::observe;
pub use overrides::{Enforcement, Override, OverrideError, OverrideSource, Overrides};
pub use policy::{InvalidPolicy, Policy, Tier, TooLarge};
pub use ratelimit_core::{Algorithm, MAX_TIERS, PolicyFault};
#[doc = include_str!("attribute.md")]
pub use ratelimit_macros::rate_limit;
pub use registry::{RegisteredPolicy, conflicts, policies};
pub use rejection::FromRejection;
pub use request::OnStoreError;

/// All that generated code may name. It changes with the attribute: do not use it.
#[doc(hidden)]
pub mod __private {
    pub use crate::macro_support::*;
}
