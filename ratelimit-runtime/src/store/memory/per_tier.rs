//! One state for each tier of a policy.

use std::ops::{Deref, DerefMut};

/// Most policies have one tier, and its state stands in place.
pub(super) enum PerTier<T> {
    One(T),
    /// None until there are some.
    #[expect(clippy::box_collection, reason = "a pointer of one word leaves `One` a niche")]
    Several(Option<Box<Vec<T>>>),
}

impl<T: Copy> PerTier<T> {
    /// Takes in what has become of the states.
    #[inline]
    pub(super) fn keep(&mut self, mut states: impl ExactSizeIterator<Item = T>) {
        if self.len() == states.len() {
            self.iter_mut().zip(states).for_each(|(kept, state)| *kept = state);
        } else if states.len() == 1
            && let Some(state) = states.next()
        {
            *self = Self::One(state);
        } else {
            *self = Self::Several(Some(Box::new(states.collect())));
        }
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
