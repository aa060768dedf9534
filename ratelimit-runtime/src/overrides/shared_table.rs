//! A hash table of which a changed copy shares most parts with the one before.

use std::{array, sync::Arc};

use hashbrown::HashTable;

/// The parts. Of 10 000 entries, a change copies the pointers to 40.
const PARTS: usize = 256;

/// Entries by their hashes. A copy costs as much with many entries as with few.
pub(super) struct SharedTable<T>([Option<Arc<TablePart<T>>>; PARTS]);

type TablePart<T> = HashTable<(u64, Arc<T>)>;

impl<T> Clone for SharedTable<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for SharedTable<T> {
    fn default() -> Self {
        Self(array::from_fn(|_| None))
    }
}

/// Returns the part of a hash, by bits by which a part does not find its entries.
fn part_of(hash: u64) -> usize {
    (hash >> 24) as usize % PARTS
}

impl<T> SharedTable<T> {
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(&T) -> bool) -> Option<&T> {
        let part = self.0[part_of(hash)].as_ref()?;
        let entry = part.find(hash, |(of, entry)| *of == hash && is_it(entry));
        entry.map(|(_, entry)| &**entry)
    }

    /// Replaces an entry, or removes it. Returns `true` if there was one.
    pub(super) fn replace(
        &mut self,
        hash: u64,
        is_it: impl Fn(&T) -> bool,
        entry: Option<T>,
    ) -> bool {
        let place = &mut self.0[part_of(hash)];
        let part = Arc::make_mut(place.get_or_insert_default());
        let found = part.find_entry(hash, |(of, entry)| *of == hash && is_it(entry));
        let was_known = found.map(|found| drop(found.remove())).is_ok();
        if let Some(entry) = entry {
            part.insert_unique(hash, (hash, Arc::new(entry)), |(hash, _)| *hash);
        } else if part.is_empty() {
            *place = None;
        }
        was_known
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten().flat_map(|part| part.iter().map(|(_, entry)| &**entry))
    }
}
