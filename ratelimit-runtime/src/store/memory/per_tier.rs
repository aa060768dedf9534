//! One state for each tier of a policy.

use std::ops::{Deref, DerefMut};

use crate::policy::Tier;

/// Most policies have one tier, and its state stands in place.
pub(super) enum PerTier<T> {
    One(T),
    /// None until there are some.
    #[expect(clippy::box_collection, reason = "a pointer of one word leaves `One` a niche")]
    Several(Option<Box<Vec<T>>>),
}

impl<T: Copy> PerTier<T> {
    /// Makes it one state for each of these tiers: those that it had, and new ones.
    #[inline]
    pub(super) fn fit(&mut self, tiers: &[Tier], new: impl Fn(&Tier) -> T) {
        if self.len() == tiers.len() {
            return;
        }
        let state = |(index, tier)| self.get(index).copied().unwrap_or_else(|| new(tier));
        *self = match tiers {
            [tier] => Self::One(state((0, tier))),
            _ => Self::Several(Some(Box::new(tiers.iter().enumerate().map(state).collect()))),
        };
    }
}

impl<T> Default for PerTier<T> {
    fn default() -> Self {
        Self::Several(None)
    }
}

impl<T> Deref for PerTier<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::One(state) => std::slice::from_ref(state),
            Self::Several(states) => states.as_deref().map_or(&[], Vec::as_slice),
        }
    }
}

impl<T> DerefMut for PerTier<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::One(state) => std::slice::from_mut(state),
            Self::Several(states) => states.as_deref_mut().map_or(&mut [], Vec::as_mut_slice),
        }
    }
}
