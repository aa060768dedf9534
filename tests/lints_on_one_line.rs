//! Functions of every kind, each on one line.
#![deny(
    warnings,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    unused,
    future_incompatible,
    rust_2018_idioms,
    missing_docs,
    unused_qualifications
)]
#![allow(clippy::missing_errors_doc, reason = "they are all alike here")]
#![allow(clippy::redundant_pub_crate, reason = "`unreachable_pub` asks for the contrary")]

include!(concat!(env!("OUT_DIR"), "/lints_on_one_line.rs"));
