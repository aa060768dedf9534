//! The order in which method look-up searches: what it finds first hides what comes later.

use std::ops::Deref;

/// A place where method look-up searches before it searches `L`.
pub struct Before<L>(pub(super) L);

impl<L> Deref for Before<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.0
    }
}
