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
    /// Makes it these states. What it has on the heap it keeps.
    #[inline]
    pub(super) fn put(&mut self, states: &[T]) {
        match (self, states) {
            (Self::One(place), [state]) => *place = *state,
            (Self::Several(Some(places)), _) if places.len() == states.len() => {
                places.copy_from_slice(states);
            }
            (Self::Several(Some(places)), _) => {
                places.clear();
                places.reserve_exact(states.len());
                places.extend_from_slice(states);
            }
            (place, [state]) => *place = Self::One(*state),
            (place, _) => *place = Self::Several(Some(Box::new(states.to_vec()))),
        }
    }

    /// The bytes that it takes more on the heap to be so many states.
    #[inline]
    pub(super) fn growth(&self, count: usize) -> usize {
        match self {
            Self::Several(Some(places)) if count <= places.capacity() => 0,
            _ if count <= 1 => 0,
            _ => heap_bytes::<T>(count) - self.heap_bytes(),
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Several(Some(places)) => heap_bytes::<T>(places.capacity()),
            _ => 0,
        }
    }
}

fn heap_bytes<T>(count: usize) -> usize {
    size_of::<Vec<T>>() + count * size_of::<T>()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_was_put_however_many_there_were_before() {
        let mut states = PerTier::default();
        assert_eq!(*states, [0; 0]);
        for count in [1, 1, 2, 2, 3, 2, 1, 8, 1] {
            let put: Vec<_> = (0..count).collect();
            let heap_bytes = states.heap_bytes() + states.growth(put.len());
            states.put(&put);
            assert_eq!(states.heap_bytes(), heap_bytes);
            assert_eq!(*states, *put);
            for state in states.iter_mut() {
                *state += 1;
            }
            assert_eq!(*states, *(1..=count).collect::<Vec<_>>());
        }
    }
}
