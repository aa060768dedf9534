//! Something for each policy, found by its name.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

/// As many as there are policies; none is ever removed.
#[derive(Default)]
pub(super) struct ByName<T>(RwLock<HashMap<&'static str, Arc<T>>>);

impl<T: Default> ByName<T> {
    pub(super) fn of(&self, policy: &'static str) -> Arc<T> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(policy) {
            return Arc::clone(found);
        }
        drop(known);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry(policy).or_default())
    }

    #[cfg(feature = "dashboard")]
    pub(super) fn all(&self) -> Vec<(&'static str, Arc<T>)> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(name, it)| (*name, Arc::clone(it))).collect()
    }
}
