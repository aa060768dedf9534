//! The zoo with every function on one line, as some teams and some macros leave code.
#![deny(
    warnings,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    unused,
    future_incompatible,
    rust_2018_idioms,
    missing_docs
)]
#![allow(clippy::redundant_pub_crate, reason = "`unreachable_pub` asks for the contrary")]

include!(concat!(env!("OUT_DIR"), "/zoo_on_one_line.rs"));
