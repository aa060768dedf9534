//! The parts of a key, by autoref specialization.
//!
//! Method look-up finds the first `pick` that fits. Text and integers come first, because they need
//! no formatter. Each further `Deref` adds one kind: an `Option`, then a reference to one, and last
//! everything else. None has bounds, so that [`KeyPart::push_to`] reports a value without a
//! `Display`, at the value.

use std::fmt::Display;

use super::before::Before;
use crate::caller::Caller;

/// Wraps a value that becomes a part.
pub const fn part<T: ?Sized>(value: &T) -> Part<'_, T> {
    Before(Before(Before(Plain(value))))
}

/// The first place where method look-up finds `pick`.
pub(super) type Part<'a, T> = Before<Optional<'a, T>>;

/// The second place where method look-up finds `pick`.
type Optional<'a, T> = Before<Borrowed<'a, T>>;

/// The third place where method look-up finds `pick`.
type Borrowed<'a, T> = Before<Plain<'a, T>>;

/// The last place where method look-up finds `pick`.
pub struct Plain<'a, T: ?Sized>(pub(super) &'a T);

impl<T: AsText + ?Sized> Part<'_, T> {
    /// Returns what appends the value.
    #[expect(clippy::unnecessary_wraps, reason = "one of several of this name")]
    pub const fn pick(&self) -> Option<&Self> {
        Some(self)
    }
}

impl<T> Optional<'_, Option<T>> {
    /// Returns the value, if there is one.
    pub const fn pick(&self) -> Option<&T> {
        self.0.0.0.as_ref()
    }
}

impl<T> Borrowed<'_, &Option<T>> {
    /// Returns the value, if there is one.
    pub const fn pick(&self) -> Option<&T> {
        self.0.0.as_ref()
    }
}

impl<'a, T: ?Sized> Plain<'a, T> {
    /// Returns the value.
    #[expect(clippy::unnecessary_wraps, reason = "one of several of this name")]
    pub const fn pick(&self) -> Option<&'a T> {
        Some(self.0)
    }
}

/// A type that can be part of a [`key`](macro@crate::rate_limit#key): every type that implements
/// `Display`, and [`Caller`].
///
/// Compile errors name this trait for any other value in `key`. Implement `Display`, or name a
/// field that has it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a rate limit's key",
    label = "the key is made of the text of this value, and `{Self}` has no `Display`",
    note = "name a field that has a `Display`, as `user.id` or `id.0`; or implement `std::fmt::Display` for `{Self}`",
    note = "an `Option` of such a value is a part too, and a tuple makes several parts; so is a `Caller`"
)]
pub trait KeyPart {
    /// Appends the value; without one, a part that no value equals.
    #[doc(hidden)]
    fn push_to(value: Option<&Self>, caller: &mut Caller);
}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> KeyPart for T {
    fn push_to(value: Option<&Self>, caller: &mut Caller) {
        match value {
            Some(value) => caller.push(value),
            None => caller.push_none(),
        }
    }
}

#[diagnostic::do_not_recommend]
impl KeyPart for Caller {
    fn push_to(value: Option<&Self>, caller: &mut Caller) {
        match value {
            Some(value) => caller.push_caller(value),
            None => caller.push_none(),
        }
    }
}

#[diagnostic::do_not_recommend]
impl KeyPart for &Caller {
    fn push_to(value: Option<&Self>, caller: &mut Caller) {
        KeyPart::push_to(value.copied(), caller);
    }
}

#[diagnostic::do_not_recommend]
impl<T: AsText + ?Sized> KeyPart for Part<'_, T> {
    #[inline(always)]
    fn push_to(value: Option<&Self>, caller: &mut Caller) {
        let Some(Before(Before(Before(Plain(value))))) = value else { return };
        value.append_as_part(caller);
    }
}

/// A value that is text, or becomes text without a formatter: the same that its `Display` writes.
pub trait AsText {
    /// Calls `take` with the text.
    fn with_text(&self, take: impl FnOnce(&str));

    /// Appends the text as a part.
    #[doc(hidden)]
    #[inline(always)]
    fn append_as_part(&self, caller: &mut Caller) {
        self.with_text(|text| caller.push_str(text));
    }
}

impl AsText for str {
    #[inline(always)]
    fn with_text(&self, take: impl FnOnce(&str)) {
        take(self);
    }
}

impl AsText for String {
    fn with_text(&self, take: impl FnOnce(&str)) {
        take(self);
    }
}

impl<T: AsText + ?Sized> AsText for &T {
    fn with_text(&self, take: impl FnOnce(&str)) {
        (**self).with_text(take);
    }

    #[inline(always)]
    fn append_as_part(&self, caller: &mut Caller) {
        (**self).append_as_part(caller);
    }
}

macro_rules! whole_numbers {
    ($($number:ty)*) => {$(
        impl AsText for $number {
            fn with_text(&self, take: impl FnOnce(&str)) {
                take(itoa::Buffer::new().format(*self));
            }

            #[inline]
            fn append_as_part(&self, caller: &mut Caller) {
                let is_pushed = u32::try_from(*self).is_ok_and(|number| caller.push_number(number));
                if !is_pushed {
                    self.with_text(|text| caller.push_str(text));
                }
            }
        }
    )*};
}

whole_numbers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_that_differ_make_keys_that_differ() {
        let of = |parts: &[&str]| {
            let mut caller = Caller::without_parts();
            for part in parts {
                caller.push(part);
            }
            caller
        };
        let words = ["a", "b", "%caller-2", "a/b", ""];
        let mut callers: Vec<Caller> = words.iter().map(|word| of(&[word])).collect();
        for first in words {
            callers.extend(words.map(|second| of(&[first, second])));
        }
        callers.extend([Caller::none(), Caller::shared(), Caller::fallback("a")]);
        // Also callers that are made of callers.
        for nested in [("a", of(&["b", "a"])), ("b", of(&["a", "b"]))] {
            callers.push(crate::caller!(nested.0, &nested.1));
        }
        let mut keys = std::collections::HashMap::new();
        for (number, first) in callers.iter().enumerate() {
            for (other, second) in callers.iter().enumerate() {
                let key = crate::caller!(first, second);
                let earlier = keys.insert(key, (number, other));
                assert_eq!(earlier, None, "{:?}", (number, other));
            }
        }
    }

    #[test]
    fn a_caller_alone_is_itself_and_one_of_one_part_is_that_part() {
        let (alice, both) = (Caller::from("alice"), Caller::from("acme").and(42));
        assert_eq!(crate::caller!(both), both);
        assert_eq!(crate::caller!(Some(&both)), both);
        assert_eq!(crate::caller!(both, 7), both.clone().and(7));
        assert_eq!(crate::caller!("acme", alice), Caller::from("acme").and("alice"));
        assert_ne!(crate::caller!("acme", both), crate::caller!("acme", "acme", 42));
        assert_eq!(crate::caller!(None::<Caller>, 7), Caller::none().and(7));
    }

    #[test]
    fn a_text_is_what_the_value_displays_as() {
        fn assert_same(value: &(impl AsText + Display + ?Sized)) {
            value.with_text(|text| assert_eq!(text, value.to_string()));
        }
        for text in ["", "alice", "a/b"] {
            assert_same(text);
            assert_same(&text);
            assert_same(&text.to_owned());
        }
        for number in [i64::MIN, -1, 0, 1, 9, 10, 99, 100, i64::MAX] {
            assert_same(&number);
            assert_same(&i128::from(number));
            assert_same(&number.unsigned_abs());
        }
        assert_same(&u8::MAX);
        assert_same(&i8::MIN);
        assert_same(&u128::MAX);
        assert_same(&i128::MIN);
    }
}
