//! The comparison of a limit's properties: which of two texts is stricter.

use std::cmp::Ordering;

use ratelimit_core::period;

use super::LimitText;
use crate::policy::OnStoreError;

/// Compares the tiers: the stricter list is the greater one. A list is as strict as another if each
/// tier of the other follows from one of its own.
pub(super) fn of_tiers(before: &LimitText, after: &LimitText) -> Option<Ordering> {
    let follows = |tier: &str, from: &str| {
        tier == from
            || match (numbers(tier), numbers(from)) {
                (Some(tier), Some(from)) => from.0 <= tier.0 && from.1 >= tier.1,
                _ => false,
            }
    };
    let is_as_strict = |one: &LimitText, other: &LimitText| {
        other.values("tier").all(|tier| one.values("tier").any(|from| follows(tier, from)))
    };
    let order = is_as_strict(after, before).cmp(&is_as_strict(before, after));
    Some(order).filter(|order| order.is_ne())
}

/// Returns the threshold and the period of a tier, unless one of them comes with each call.
fn numbers(tier: &str) -> Option<(u64, u64)> {
    let (threshold, time) = tier.split_once(" per ")?;
    Some((threshold.parse().ok()?, period::parse(time).ok()?))
}

/// Compares a property that has one value: the stricter one is greater.
pub(super) fn of_property(
    property: &str,
    before: &LimitText,
    after: &LimitText,
) -> Option<Ordering> {
    let is_new = [before, after].iter().any(|block| block.values(property).next().is_none());
    let rank = |block: &LimitText| -> Option<u64> {
        let value = block.values(property).next();
        let number = value.map(str::parse::<u64>).transpose().ok();
        match property {
            "concurrency" => Some(number?.map_or(0, |calls| u64::MAX - calls)),
            "burst" => Some(u64::MAX - number??),
            "cost" => Some(number?.unwrap_or(1)),
            "count_rejected" => Some(value.is_some().into()),
            "dry_run" => Some(value.is_none().into()),
            "leave" => match value {
                Some(share) => Some(share.strip_suffix('%')?.parse().ok()?),
                None => Some(0),
            },
            "on_store_error" => Some(match value?.parse().ok()? {
                OnStoreError::Allow => 0,
                OnStoreError::Local => 1,
                OnStoreError::LocalShare(share) => 101 - u64::from(share.percent()),
                OnStoreError::Deny => 101,
            }),
            "skip" if is_new => Some(value.is_none().into()),
            _ => None,
        }
    };
    Some(rank(after)?.cmp(&rank(before)?)).filter(|order| order.is_ne())
}
