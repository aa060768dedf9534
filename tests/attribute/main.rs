//! Annotated functions of every shape keep their limits, under a name of their own, and compile without a
//! warning.

// The other lints are denied where functions stand as users write them; this group takes the whole crate.
#![deny(future_incompatible)]

// Renamed here, as a dependency may be in `Cargo.toml`; for `real_handlers`.
extern crate ratelimit_runtime as limits;

mod answers;
mod boxed_futures;
mod calls;
mod combined;
mod concurrency;
mod fallible;
mod fallible_on_actix;
mod fallible_on_axum;
mod framework_handlers;
mod keys;
mod names;
mod nesting;
pub mod on_one_line;
mod plans;
mod real_handlers;
mod settle;
mod shared_policies;
mod sharing;
mod stacked;
mod usage;
mod values;

use ratelimit_runtime::RateLimitError;

/// Returns `true` if the answer is a refusal.
fn is_exceeded<T>(answer: &Result<T, RateLimitError>) -> bool {
    matches!(answer, Err(RateLimitError::Exceeded(_)))
}
