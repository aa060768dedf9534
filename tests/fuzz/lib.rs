//! What holds for any input: one function for each fuzz target. As a test this file feeds them the
//! corpus; libFuzzer feeds them what it makes of it.
//!
//! A further target is a file in `properties` with its function below, one in `targets`, its
//! `[[bin]]` in `Cargo.toml`, a folder in `corpus`, and a line in the test at the end.

#![allow(clippy::missing_panics_doc, reason = "a property that does not hold panics")]

// A proc-macro crate exports nothing but its macros, so its modules are taken in by their paths.
#[path = "../../ratelimit-macros/src/args.rs"]
mod args;
#[path = "../../ratelimit-macros/src/boxed_future.rs"]
mod boxed_future;
#[path = "../../ratelimit-macros/src/errors.rs"]
mod errors;
#[path = "../../ratelimit-macros/src/expand.rs"]
mod expand;
#[path = "../../ratelimit-macros/src/fallible.rs"]
mod fallible;
#[path = "../../ratelimit-macros/src/function.rs"]
mod function;
#[path = "../../ratelimit-macros/src/limit.rs"]
mod limit;
#[path = "../../ratelimit-macros/src/stacked.rs"]
mod stacked;
#[path = "../../ratelimit-macros/src/value.rs"]
mod value;

mod properties {
    pub(crate) mod address;
    pub(crate) mod arguments;
    pub(crate) mod identity;
    pub(crate) mod period;
}

/// Forwarding headers and the client's address: see the file of this name in `properties`.
pub fn address(bytes: &[u8]) {
    properties::address::holds(bytes);
}

/// The arguments of the attribute, and the item that it stands on.
pub fn arguments(text: &str) {
    properties::arguments::holds(text);
}

/// Who calls, by header and peer.
pub fn identity(bytes: &[u8]) {
    properties::identity::holds(bytes);
}

/// Lengths of time such as `"1h 30m"`.
pub fn period(text: &str) {
    properties::period::holds(text);
}

#[cfg(test)]
mod corpus;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_hold_for_the_corpus() {
        let text = |property: fn(&str)| {
            move |bytes: &[u8]| property(str::from_utf8(bytes).expect("a corpus of text"))
        };
        corpus::each("address", address);
        corpus::each("arguments", text(arguments));
        corpus::each("identity", identity);
        corpus::each("period", text(period));
    }
}
