//! The hash of a request id. As of a part of a key, text and integers come first, because they need
//! no formatter.

use std::fmt::Display;

use super::{
    before::Before,
    key_part::{AsText, Part, Plain},
};
use crate::key;

impl<T: AsText + ?Sized> Part<'_, T> {
    /// Returns what hashes the value.
    pub const fn id(&self) -> &Self {
        self
    }
}

impl<'a, T: ?Sized> Plain<'a, T> {
    /// Returns the value.
    pub const fn id(&self) -> &'a T {
        self.0
    }
}

/// A type that can be a [`request_id`](macro@crate::rate_limit#request_id): every type that
/// implements `Display`.
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
impl<T: AsText + ?Sized> RequestId for Part<'_, T> {
    fn hash(&self) -> u64 {
        let (Before(Before(Before(Plain(value)))), mut hash) = (self, 0);
        value.with_text(|text| hash = key::hash_text(text));
        hash
    }
}

#[cfg(test)]
mod tests {
    use super::{super::part, *};

    #[test]
    fn an_id_without_a_formatter_has_the_hash_of_its_text() {
        let of_text = |text: &dyn Display| key::hash_request_id(text);
        assert_eq!(RequestId::hash(part("a").id()), of_text(&"a"));
        assert_eq!(RequestId::hash(part(&"a".to_owned()).id()), of_text(&"a"));
        assert_eq!(RequestId::hash(part(&-7_i128).id()), of_text(&-7));
        assert_eq!(RequestId::hash(part(&1.5).id()), of_text(&1.5));
    }
}
