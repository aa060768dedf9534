//! The identity of a caller: the parts of its key.

use std::{
    borrow::Cow,
    fmt::{self, Write},
};

use sha2::{Digest, Sha256};

use super::{CallerBytes, InlineBytes, MAX_PART, escape};

/// The part of an absent value.
const NONE: &[u8] = b"/%none";

/// The identity under which a call is counted: one or more parts.
///
/// Every [`Display`](fmt::Display) type converts into a caller of one part. Different parts always
/// make different callers: `("a/b", "c")` is not `("a", "b/c")`, and empty parts count.
///
/// ```
/// use ratelimit_runtime::Caller;
///
/// let user = Caller::from("user-42");
/// let tenant_user = Caller::from("acme").and(42);
/// assert_ne!(user, tenant_user);
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
#[must_use]
pub struct Caller {
    parts: InlineBytes,
}

impl Caller {
    /// The parts of the shared caller.
    const SHARED: &[u8] = b"/%shared";

    /// Adds a further part.
    pub fn and(mut self, part: impl fmt::Display) -> Self {
        self.push(&part);
        self
    }

    /// Returns a caller of one part that appears in keys only as its SHA-256. `Identity::header`
    /// returns the same.
    ///
    /// ```
    /// use ratelimit_runtime::Caller;
    ///
    /// assert_ne!(Caller::digest("sk-live-4711"), Caller::from("sk-live-4711"));
    /// ```
    pub fn digest(part: impl fmt::Display) -> Self {
        let mut caller = Self::without_parts();
        let mut writer = PartWriter::new(&mut caller.parts);
        writer.digest = Some(Sha256::new());
        let _ = write!(writer, "{part}");
        writer.finish();
        caller
    }

    /// Returns `caller` as the second extractor of an identity finds it, after `Identity::or`.
    /// Apply it twice for the third extractor.
    pub fn fallback(caller: impl Into<Self>) -> Self {
        Self::from_parts(b"/%or").join(&caller.into())
    }

    /// Returns the caller of one absent part: the one that `key` makes of `Option::None`.
    ///
    /// ```
    /// use ratelimit_runtime::Caller;
    ///
    /// assert_ne!(Caller::none(), Caller::from("None"));
    /// ```
    pub fn none() -> Self {
        Self::from_parts(NONE)
    }

    /// Adds all parts of another caller.
    ///
    /// ```
    /// use ratelimit_runtime::Caller;
    ///
    /// // `key = (tenant, user)` with a `user` that is `None`.
    /// let anonymous = Caller::from("acme").join(&Caller::none());
    /// assert_ne!(anonymous, Caller::from("acme"));
    /// assert_eq!(Caller::from("acme").join(&Caller::from(42)), Caller::from("acme").and(42));
    /// ```
    pub fn join(mut self, other: &Self) -> Self {
        self.append(other);
        self
    }

    /// Returns `true` if all parts of another caller are among these, one after the other.
    pub(crate) fn has(&self, other: &Self) -> bool {
        let ends = |rest: &[u8]| rest.first().is_none_or(|next| *next == b'/');
        let starts = (0..self.parts.len()).map(|start| &self.parts[start..]);
        starts.filter_map(|rest| rest.strip_prefix(&*other.parts)).any(ends)
    }

    /// Returns the caller of these parts, as they are in keys.
    pub(crate) fn from_parts(parts: &[u8]) -> Self {
        let mut caller = Self::without_parts();
        caller.parts.append(parts);
        caller
    }

    /// Returns the parts as they are in keys, such as `acme/42`.
    pub(crate) fn text(&self) -> String {
        let parts = String::from_utf8_lossy(&self.parts);
        parts.strip_prefix('/').unwrap_or(&parts).to_owned()
    }

    #[inline]
    pub(crate) fn without_parts() -> Self {
        Self { parts: InlineBytes::new() }
    }

    /// Returns the caller under which all calls without a caller are counted, for look-ups by
    /// operators.
    pub fn shared() -> Self {
        Self::from_parts(Self::SHARED)
    }

    /// Returns `true` for the [shared](Self::shared) caller.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        CallerBytes::from(&self.parts) == Self::SHARED.into()
    }

    /// Adds a part: the escaped text of `value`, or its digest if that is too long.
    pub(crate) fn push(&mut self, value: &(impl fmt::Display + ?Sized)) {
        let mut part = PartWriter::new(&mut self.parts);
        // A `Display` that fails has written the part already.
        let _ = write!(part, "{value}");
        part.finish();
    }

    /// Returns the [`digest`](Self::digest) of the value that is the one part of this caller.
    #[cfg(feature = "testing")]
    pub(crate) fn digested(&self) -> Self {
        let mut caller = Self::without_parts();
        let mut part = PartWriter::new(&mut caller.parts);
        part.parts.append(self.parts.get(1..).unwrap_or_default());
        part.digest = Some(Sha256::new());
        part.finish();
        caller
    }

    /// Adds the part of [`push`](Self::push) for a value that displays as `text`.
    #[inline(always)]
    pub(crate) fn push_str(&mut self, text: &str) {
        if !self.parts.append_word(text.as_bytes()) {
            self.push_other_str(text);
        }
    }

    #[inline(never)]
    fn push_other_str(&mut self, text: &str) {
        if !self.parts.append_part(text.as_bytes()) {
            self.push(text);
        }
    }

    /// Adds the part of [`push`](Self::push) for a number. Returns `false`, and adds nothing, if it
    /// has more than eight digits.
    pub(crate) fn push_number(&mut self, number: u32) -> bool {
        self.parts.append_number(number)
    }

    /// Adds the part of an absent value.
    pub(crate) fn push_none(&mut self) {
        self.parts.append(NONE);
    }

    /// Adds another caller as one part of a key: where the parts of several callers join, they stay
    /// apart. A caller of one part is that part, and the first caller keeps its parts as they are.
    pub(crate) fn push_caller(&mut self, other: &Self) {
        let count = other.parts.split(|byte| *byte == b'/').skip(1).count();
        if count > 1 && !self.is_empty() {
            self.parts.append(format!("/%caller-{count}").as_bytes());
        }
        self.append(other);
    }

    pub(crate) fn append(&mut self, other: &Self) {
        self.parts.append(&other.parts);
    }

    #[inline]
    pub(crate) fn parts(&self) -> &InlineBytes {
        &self.parts
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// A value that names a caller: a [`Caller`] or a reference to one, or a value that converts into
/// one, as every [`Display`](fmt::Display) type does.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no caller",
    label = "has no `Display`",
    note = "`caller!(..)` makes a caller of one or several parts, also of an `Option` such as `caller::current()`"
)]
pub trait IntoCaller<'a> {
    /// Returns the caller; a reference is not cloned.
    fn into_caller(self) -> Cow<'a, Caller>;
}

impl<'a, T: Into<Caller>> IntoCaller<'a> for T {
    #[inline]
    fn into_caller(self) -> Cow<'a, Caller> {
        Cow::Owned(self.into())
    }
}

impl<'a> IntoCaller<'a> for &'a Caller {
    #[inline]
    fn into_caller(self) -> Cow<'a, Caller> {
        Cow::Borrowed(self)
    }
}

impl<T: fmt::Display> From<T> for Caller {
    fn from(part: T) -> Self {
        Self::without_parts().and(part)
    }
}

/// Shows no part: an identity does not belong in a log.
impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}

/// A writer of one part. It changes to the digest of the escaped text once that is too long, so
/// that memory is bounded for any input.
struct PartWriter<'a> {
    parts: &'a mut InlineBytes,
    start: usize,
    digest: Option<Sha256>,
}

impl<'a> PartWriter<'a> {
    fn new(parts: &'a mut InlineBytes) -> Self {
        parts.append(b"/");
        Self { start: parts.len(), parts, digest: None }
    }

    /// Moves the text into the digest if it is longer than `length` bytes.
    fn digest_when_over(&mut self, length: usize) {
        if self.parts.len() - self.start > length {
            self.digest.get_or_insert_default().update(&self.parts[self.start..]);
            self.parts.truncate(self.start);
        }
    }

    fn finish(mut self) {
        if self.digest.is_some() {
            self.digest_when_over(0);
        }
        if let Some(digest) = self.digest {
            self.parts.append(b"%sha256-");
            for byte in digest.finalize() {
                let _ = write!(self.parts, "{byte:02x}");
            }
        }
    }
}

impl Write for PartWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.as_bytes().chunks(MAX_PART) {
            escape(piece, |escaped| self.parts.append(escaped));
            self.digest_when_over(MAX_PART);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_part() {
        assert!(!format!("{:?}", Caller::from("user-42")).contains("42"));
    }

    #[test]
    fn a_caller_has_whole_parts_in_their_order() {
        let caller = Caller::from("acme").and("alice").and(42);
        for part in [Caller::from("acme"), Caller::from("alice").and(42), caller.clone()] {
            assert!(caller.has(&part), "{}", part.text());
        }
        for other in [
            Caller::from("ali"),
            Caller::from("lice"),
            Caller::from(4),
            Caller::from("acme").and(42),
        ] {
            assert!(!caller.has(&other), "{}", other.text());
        }
    }

    #[test]
    fn absent_and_shared_parts_and_marks_are_no_text() {
        let or = Caller::fallback(Caller::without_parts());
        for text in ["", "none", "shared", "or", "%none", "%shared", "%or"] {
            let written = Caller::from(text);
            assert!(![Caller::none(), Caller::shared(), or.clone()].contains(&written));
        }
    }
}
