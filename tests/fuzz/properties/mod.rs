//! One module for each fuzz target.

pub(crate) mod address;
pub(crate) mod arguments;
pub(crate) mod identity;
pub(crate) mod period;
