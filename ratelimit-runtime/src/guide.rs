//! What is to be known beyond the items of this crate, a page for each question.

#[doc = include_str!("guide/redis.md")]
pub mod redis {}

#[doc = include_str!("guide/failures.md")]
pub mod failures {}

#[doc = include_str!("guide/capacity.md")]
pub mod capacity {}
