//! The caller of a request, and the headers and refusals of its response, for axum, tower, tonic,
//! actix-web and MCP servers.
//!
//! Only this module names a framework. Each has a feature of its name.
//!
//! - [`Identity`] finds the caller in a request: the peer's address, the client's address behind
//!   trusted proxies ([`ClientAddress`]), a header, an authenticated principal, or a function. A
//!   middleware sets it as the [ambient caller](crate::caller::scope), under which annotated
//!   functions without a `key` are counted.
//! - [`HeaderSyntax`] makes the headers with the remaining quota, on admitted responses too.
//! - [`Refusal`] makes the response to a request that is not served. It is 429 with `Retry-After`
//!   if a limit is reached, and 503 if the store could not decide.
//! - [`tower`] has layers that set the caller, and limits of requests before they are served.
//! - [`client`] keeps calls to remote services within their limits.
//! - [`axum`] converts a refusal into its response.
//! - [`actix`] converts a refusal into its response, and has middlewares that set the caller and
//!   limit requests.
//! - [`tonic`] converts a refusal into its status.
//! - [`mcp`] converts a refusal into an error of an MCP server, and finds the caller of a tool.
#![cfg_attr(
    not(all(feature = "actix", feature = "axum", feature = "mcp", feature = "tonic")),
    allow(rustdoc::broken_intra_doc_links, reason = "to the modules of other features")
)]

// Floor 9: may import everything but the macro support. Nothing imports it.

pub(crate) mod address;
#[cfg(any(feature = "actix", feature = "tower"))]
mod gate;
mod headers;
mod identity;
#[cfg(any(feature = "actix", feature = "tower"))]
mod limit;
#[cfg(any(feature = "actix", feature = "tower"))]
mod middleware;
#[cfg(any(feature = "actix", feature = "tower"))]
mod permits;
mod refusal;
#[cfg(any(feature = "actix", feature = "tower"))]
mod response;
mod single_value;
#[cfg(any(feature = "actix", feature = "tower"))]
mod status;
#[cfg(any(feature = "actix", feature = "tower"))]
mod treatment;
mod wait;

#[cfg(feature = "actix")]
pub mod actix;
#[cfg(feature = "axum")]
pub mod axum;
#[cfg(feature = "tower")]
pub mod client;
#[cfg(feature = "mcp")]
pub mod mcp;
#[cfg(feature = "tonic")]
pub mod tonic;
#[cfg(feature = "tower")]
pub mod tower;

pub use address::{
    ClientAddress, ForwardingHeader, InvalidNetwork, ProxiesFileError, TrustedProxies,
};
#[cfg(any(feature = "actix", feature = "tower"))]
pub use gate::RateLimitLayer;
pub use headers::{EXPOSED_HEADERS, HeaderSyntax};
pub use identity::{Identity, OnMalformed, OnMissing, RequestHead};
#[cfg(any(feature = "actix", feature = "tower"))]
pub use limit::Limit;
#[cfg(any(feature = "actix", feature = "tower"))]
pub use middleware::IdentityLayer;
pub use refusal::{PROBLEM_JSON, Refusal};
