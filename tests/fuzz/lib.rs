//! The properties of any input, one function for each fuzz target. libFuzzer mutates the corpus;
//! `compile/fuzz_corpus.rs` runs the corpus itself.
//!
//! A further target is a file in `properties` with its function below, one in `targets`, its
//! `[[bin]]` in `Cargo.toml`, a folder in `corpus`, and a line in `compile/fuzz_corpus.rs`.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

include!("../macro_modules.rs");
mod properties;

/// Forwarding headers and the client's address: see the file of this name in `properties`.
pub fn address(bytes: &[u8]) {
    properties::address::holds(bytes);
}

/// The arguments of the attribute, and its item.
pub fn arguments(text: &str) {
    properties::arguments::holds(text);
}

/// Asserts the caller of a request, by header and peer.
pub fn identity(bytes: &[u8]) {
    properties::identity::holds(bytes);
}

/// Lengths of time such as `"1h 30m"`.
pub fn period(text: &str) {
    properties::period::holds(text);
}
