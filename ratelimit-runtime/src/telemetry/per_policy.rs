//! A value for each policy, found by the hash of its name without a lock.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use hashbrown::HashTable;

use crate::policy::{Policy, PolicyName};

/// A value for each policy name. Names are part of the program, so that values are never dropped.
pub(super) struct PerPolicy<T: 'static> {
    values: ArcSwap<HashTable<(PolicyName, &'static T)>>,
    /// Held while a value is added.
    adding: Mutex<()>,
}

impl<T> Default for PerPolicy<T> {
    fn default() -> Self {
        Self { values: ArcSwap::default(), adding: Mutex::default() }
    }
}

impl<T: Default> PerPolicy<T> {
    /// Returns the value of this policy's name. The first call of each name adds it.
    #[inline]
    pub(super) fn of(&self, policy: &Policy) -> &'static T {
        let name = policy.full_name();
        self.find(name).unwrap_or_else(|| self.add(name))
    }

    /// Returns all names and their values.
    pub(super) fn all(&self) -> Vec<(&'static str, &'static T)> {
        self.values.load().iter().map(|(name, value)| (name.text(), *value)).collect()
    }

    /// Returns the value of a name, if there is one.
    pub(super) fn find(&self, name: PolicyName) -> Option<&'static T> {
        let values = self.values.load();
        values.find(name.hash(), |(known, _)| *known == name).map(|(_, value)| *value)
    }

    #[cold]
    fn add(&self, name: PolicyName) -> &'static T {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have added it since.
        if let Some(value) = self.find(name) {
            return value;
        }
        let value = Box::leak(Box::<T>::default());
        let mut values = HashTable::clone(&self.values.load());
        values.insert_unique(name.hash(), (name, value), |(name, _)| name.hash());
        self.values.store(Arc::new(values));
        value
    }
}
