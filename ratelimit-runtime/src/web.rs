//! Who is calling, and what a client is told, in the frameworks people use. Only here is a
//! framework named; each has a feature of its name.
//!
//! - [`Identity`] finds the caller in a request: the peer's address, the client's address behind
//!   trusted proxies ([`ClientAddress`]), a header, an authenticated principal, or a function. A
//!   layer sets it as the ambient caller, for which annotated functions without a `key` are
//!   counted.
//! - [`HeaderSyntax`] makes the header fields with what is left to the caller, on admitted responses too.
//! - [`Refusal`] makes the response to a request that is not served: 429 with `Retry-After` when a
//!   limit is reached, 503 when the store could not decide.
#![cfg_attr(
    feature = "tower",
    doc = "- [`tower`] has layers: who is calling, and limits in front of a service."
)]
#![cfg_attr(feature = "axum", doc = "- [`axum`] has a refusal as its response.")]
#![cfg_attr(
    feature = "actix",
    doc = "- [`actix`] has a refusal as its response, and a middleware."
)]
#![cfg_attr(feature = "tonic", doc = "- [`tonic`] has a refusal as its status.")]
#![cfg_attr(
    feature = "dashboard",
    doc = "- [`dashboard`] is a page for operators: what all limits do now, and how to change it."
)]

mod address;
mod headers;
mod identity;
mod refusal;
#[cfg(any(feature = "actix", feature = "tower"))]
mod status;

#[cfg(feature = "actix")]
pub mod actix;
#[cfg(feature = "axum")]
pub mod axum;
#[cfg(feature = "dashboard")]
pub mod dashboard;
#[cfg(feature = "tonic")]
pub mod tonic;
#[cfg(feature = "tower")]
pub mod tower;

pub use address::{ClientAddress, ForwardingHeader, InvalidNetwork};
pub use headers::HeaderSyntax;
pub use identity::{Identity, Malformed, OnMissing, RequestHead};
pub use refusal::{PROBLEM_JSON, Refusal};
