//! The hash of a request id, by autoref specialization: text and integers need no formatter.

use std::fmt::Display;

use super::{before::Before, key_part::AsText};
use crate::key;

/// Wraps a value that becomes a request id.
pub const fn request_id<T: ?Sized>(value: &T) -> Before<Id<'_, T>> {
    Before(Id(value))
}

/// The last place where method look-up finds `pick`.
pub struct Id<'a, T: ?Sized>(&'a T);

impl<T: AsText + ?Sized> Before<Id<'_, T>> {
    /// Returns what hashes the value.
    #[must_use]
    pub const fn pick(&self) -> &Self {
        self
    }
}

impl<'a, T: ?Sized> Id<'a, T> {
    /// Returns the value.
    #[must_use]
    pub const fn pick(&self) -> &'a T {
        self.0
    }
}

/// A type that can be a [`request_id`](macro@crate::rate_limit#request_id): every type that implements `Display`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a request id",
    label = "the id is the text of this value, and `{Self}` has no `Display`",
    note = "name a field that has a `Display`, as `payment.id` or `id.0`; or implement `std::fmt::Display` for `{Self}`"
)]
pub trait RequestId {
    #[doc(hidden)]
    fn hash(&self) -> u64;
}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> RequestId for T {
    fn hash(&self) -> u64 {
        key::hash_request_id(self)
    }
}

#[diagnostic::do_not_recommend]
impl<T: AsText + ?Sized> RequestId for Before<Id<'_, T>> {
    fn hash(&self) -> u64 {
        let mut hash = 0;
        self.0.0.with_text(|text| hash = key::hash_text(text));
        hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_without_a_formatter_has_the_hash_of_its_text() {
        let of_text = |text: &dyn Display| key::hash_request_id(text);
        assert_eq!(RequestId::hash(request_id("a").pick()), of_text(&"a"));
        assert_eq!(RequestId::hash(request_id(&"a".to_owned()).pick()), of_text(&"a"));
        assert_eq!(RequestId::hash(request_id(&-7_i128).pick()), of_text(&-7));
        assert_eq!(RequestId::hash(request_id(&1.5).pick()), of_text(&1.5));
    }
}
