//! The guide: one page for each task.
//!
//! [`tutorial`]: tutorial
//! [`choosing`]: choosing
//! [`cookbook`]: cookbook
//! [`callers`]: callers
//! [`layers`]: layers
//! [`clients`]: clients
//! [`metering`]: metering
//! [`waiting`]: waiting
//! [`testing`]: testing
//! [`production`]: production
//! [`operating`]: operating
//! [`overrides`]: overrides
//! [`troubleshooting`]: troubleshooting
//! [`redis`]: redis
//! [`failures`]: failures
//! [`capacity`]: capacity
//! [`pipeline`]: pipeline
//! [`design`]: design
//! [`comparison`]: comparison
//! [`migration`]: migration
//!
//! <!--
#![doc = include_str!("guide/README.md")]

// Floor 9: imports nothing, and nothing imports it.

#[cfg(test)]
mod tests;

#[cfg_attr(feature = "axum", doc = include_str!("guide/tutorial.md"))]
#[cfg_attr(
    not(feature = "axum"),
    doc = "Rendered with the feature `axum`: `cargo doc --all-features`."
)]
pub mod tutorial {}

#[doc = include_str!("guide/choosing.md")]
pub mod choosing {}

#[cfg_attr(all(feature = "axum", feature = "overrides"), doc = include_str!("guide/cookbook.md"))]
#[cfg_attr(
    not(all(feature = "axum", feature = "overrides")),
    doc = "Rendered with the features `axum` and `overrides`: `cargo doc --all-features`."
)]
pub mod cookbook {}

#[doc = include_str!("guide/callers.md")]
pub mod callers {}

#[cfg_attr(all(feature = "actix", feature = "axum", feature = "tonic"), doc = include_str!("guide/layers.md"))]
#[cfg_attr(
    not(all(feature = "actix", feature = "axum", feature = "tonic")),
    doc = "Rendered with the features `actix`, `axum` and `tonic`: `cargo doc --all-features`."
)]
pub mod layers {}

#[cfg_attr(feature = "web", doc = include_str!("guide/clients.md"))]
#[cfg_attr(
    not(feature = "web"),
    doc = "Rendered with the feature `web`: `cargo doc --all-features`."
)]
pub mod clients {}

#[doc = include_str!("guide/metering.md")]
pub mod metering {}

#[doc = include_str!("guide/waiting.md")]
pub mod waiting {}

#[cfg_attr(feature = "testing", doc = include_str!("guide/testing.md"))]
#[cfg_attr(
    not(feature = "testing"),
    doc = "Rendered with the feature `testing`: `cargo doc --all-features`."
)]
pub mod testing {}

#[doc = include_str!("guide/production.md")]
pub mod production {}

#[doc = include_str!("guide/operating.md")]
pub mod operating {}

#[cfg_attr(feature = "overrides", doc = include_str!("guide/overrides.md"))]
#[cfg_attr(
    not(feature = "overrides"),
    doc = "Rendered with the feature `overrides`: `cargo doc --all-features`."
)]
pub mod overrides {}

#[doc = include_str!("guide/troubleshooting.md")]
pub mod troubleshooting {}

#[doc = include_str!("guide/redis.md")]
pub mod redis {}

#[doc = include_str!("guide/failures.md")]
pub mod failures {}

#[doc = include_str!("guide/capacity.md")]
pub mod capacity {}

#[doc = include_str!("guide/pipeline.md")]
pub mod pipeline {}

#[doc = include_str!("guide/design.md")]
pub mod design {}

#[doc = include_str!("guide/comparison.md")]
pub mod comparison {}

#[cfg_attr(all(feature = "actix", feature = "axum"), doc = include_str!("guide/migration.md"))]
#[cfg_attr(
    not(all(feature = "actix", feature = "axum")),
    doc = "Rendered with the features `actix` and `axum`: `cargo doc --all-features`."
)]
pub mod migration {}

// Runs its examples, as those of the English README are run.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../README.zh-CN.md")]
mod readme_in_chinese {}
