//! Something for each policy, found by its name.

use std::sync::{PoisonError, RwLock};

use hashbrown::HashMap;

/// As many as there are policies, whose names are part of the program: they stay for good.
#[derive(Default)]
pub(super) struct ByName<T: 'static>(RwLock<HashMap<&'static str, &'static T>>);

impl<T: Default> ByName<T> {
    pub(super) fn of(&self, policy: &'static str) -> &'static T {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(policy) {
            return found;
        }
        drop(known);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.entry(policy).or_insert_with(|| Box::leak(Box::default()))
    }

    #[cfg(feature = "dashboard")]
    pub(super) fn all(&self) -> Vec<(&'static str, &'static T)> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(name, it)| (*name, *it)).collect()
    }
}
