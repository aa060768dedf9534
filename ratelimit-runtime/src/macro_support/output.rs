//! The output of a function with `fallible`, for type checks only: nothing here runs.

use std::{marker::PhantomData, ops::Deref};

use crate::rejection::FromRejection;

/// The type in the signature.
pub struct Output<T>(AnyOutput<T>);

/// The second place where method look-up searches, for a type that cannot carry refusals.
pub struct AnyOutput<T>(PhantomData<fn() -> T>);

impl<T> Output<T> {
    /// The type, to be checked.
    pub const NEVER: Self = Self(AnyOutput(PhantomData));
}

impl<T> Deref for Output<T> {
    type Target = AnyOutput<T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T: FromRejection> Output<T> {
    /// Found for a type that can carry refusals, for which `fallible` is an error.
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
    pub fn not_yet_fallible(&self) -> T {
        never()
    }
}

/// Implemented by no type: the bound that reports `fallible` on a type that can carry refusals.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can carry a rate limit's refusal without `fallible`",
    label = "remove this argument",
    note = "a refused call returns `FromRejection::from_rejection(error)` then"
)]
pub trait NotYetFallible {}

/// Returns no value: its branch is never taken.
pub fn never<T>() -> T {
    unreachable!("stands in a branch that is never taken")
}
