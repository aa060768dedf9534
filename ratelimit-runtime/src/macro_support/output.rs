//! What the body of a function with `fallible` gives, for the compiler alone: nothing here runs.

use std::{marker::PhantomData, ops::Deref};

use crate::rejection::FromRejection;

/// The type that is written in the signature.
pub struct Output<T>(AnyOutput<T>);

/// Where method look-up goes on for a type that carries no refusals.
pub struct AnyOutput<T>(PhantomData<fn() -> T>);

impl<T> Output<T> {
    /// The type, to be judged.
    pub const NEVER: Self = Self(AnyOutput(PhantomData));
}

impl<T> Deref for Output<T> {
    type Target = AnyOutput<T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T: FromRejection> Output<T> {
    /// Found for a type that carries refusals, for which `fallible` is an error.
    #[must_use]
    pub fn not_yet_fallible(&self) -> T
    where
        T: NotYetFallible,
    {
        never()
    }
}

impl<T> AnyOutput<T> {
    /// Found for any other type.
    #[expect(clippy::unused_self, reason = "method look-up goes by it")]
    #[must_use]
    pub fn not_yet_fallible(&self) -> T {
        never()
    }
}

/// No type that carries refusals.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can carry a rate limit's refusal without `fallible`",
    label = "remove this argument",
    note = "a refused call returns `FromRejection::from_rejection(error)` then"
)]
pub trait NotYetFallible {}

/// A value that is never made.
#[must_use]
pub fn never<T>() -> T {
    unreachable!("stands in a branch that is never taken")
}
