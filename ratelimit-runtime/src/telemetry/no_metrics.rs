//! The metrics without the feature: none.
#![allow(clippy::trivially_copy_pass_by_ref, reason = "as with the feature")]

use std::{sync::atomic::AtomicI64, time::Duration};

use tokio::time::Instant;

use super::Verdict;
use crate::request::DecidedBy;

#[derive(Default)]
pub(super) struct OfLimit;

pub(super) fn decided(_: &'static str, _: &OfLimit, _: Verdict, _: DecidedBy) {}

pub(crate) fn store_answered<T, E>(_: &Result<T, E>, _: Instant) {}

pub(crate) fn memory_held(_: i64, _: i64) {}

pub(super) fn waited(_: &'static str, _: Duration) {}

pub(super) fn without_caller(_: &'static str, _: &OfLimit) {}

pub(super) fn set(_: &'static str, _: &[(&'static str, &'static str)], _: &AtomicI64) {}

pub(super) fn count(_: &'static str, _: &[(&'static str, &'static str)], _: u64) {}

pub(crate) fn server_is_up(_: &str, _: bool) {}
