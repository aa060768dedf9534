//! The guide: one page for each subject.

// Floor 9: imports nothing, and nothing imports it.

#[doc = include_str!("guide/pipeline.md")]
pub mod pipeline {}

#[doc = include_str!("guide/algorithms.md")]
pub mod algorithms {}

#[doc = include_str!("guide/metering.md")]
pub mod metering {}

#[doc = include_str!("guide/identity.md")]
pub mod identity {}

#[cfg(all(feature = "actix", feature = "axum", feature = "tonic"))]
#[doc = include_str!("guide/layers.md")]
pub mod layers {}

#[cfg(feature = "web")]
#[doc = include_str!("guide/clients.md")]
pub mod clients {}

#[doc = include_str!("guide/security.md")]
pub mod security {}

#[doc = include_str!("guide/testing.md")]
pub mod testing {}

#[cfg(all(feature = "actix", feature = "axum"))]
#[doc = include_str!("guide/migration.md")]
pub mod migration {}

#[doc = include_str!("guide/operating.md")]
pub mod operating {}

#[doc = include_str!("guide/admin.md")]
pub mod admin {}

#[cfg(feature = "overrides")]
#[doc = include_str!("guide/overrides.md")]
pub mod overrides {}

#[doc = include_str!("guide/redis.md")]
pub mod redis {}

#[doc = include_str!("guide/failures.md")]
pub mod failures {}

#[doc = include_str!("guide/capacity.md")]
pub mod capacity {}

#[doc = include_str!("guide/comparison.md")]
pub mod comparison {}

// Runs its examples, as those of the English README are run.
#[cfg(doctest)]
#[doc = include_str!("../README.zh-CN.md")]
mod readme_in_chinese {}
