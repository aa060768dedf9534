//! Functions with only spaces between their tokens behave as their formatted originals. `build.rs` writes
//! them.
#![deny(
    warnings,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    unused,
    rust_2018_idioms,
    missing_docs,
    unused_qualifications
)]
#![allow(clippy::missing_errors_doc, reason = "they are all alike here")]
#![allow(clippy::redundant_pub_crate, reason = "`unreachable_pub` asks for the contrary")]

/// The functions of `answers.rs`.
mod answers {
    include!(concat!(env!("OUT_DIR"), "/answers.rs"));
}

/// The functions of `combined.rs`.
mod combined {
    include!(concat!(env!("OUT_DIR"), "/combined.rs"));
}

/// The functions of `concurrency.rs`.
mod concurrency {
    include!(concat!(env!("OUT_DIR"), "/concurrency.rs"));
}

/// The functions of `fallible.rs`.
mod fallible {
    include!(concat!(env!("OUT_DIR"), "/fallible.rs"));
}

/// The functions of `fallible_on_actix.rs`.
mod fallible_on_actix {
    include!(concat!(env!("OUT_DIR"), "/fallible_on_actix.rs"));
}

/// The functions of `fallible_on_axum.rs`.
mod fallible_on_axum {
    include!(concat!(env!("OUT_DIR"), "/fallible_on_axum.rs"));
}

/// The functions of `framework_handlers.rs`.
mod framework_handlers {
    include!(concat!(env!("OUT_DIR"), "/framework_handlers.rs"));
}

/// The functions of `compile/ui/pass/functions.rs`.
pub mod functions {
    include!(concat!(env!("OUT_DIR"), "/functions.rs"));

    #[test]
    fn functions_of_every_kind_run() {
        main();
    }
}

/// The functions of `real_handlers.rs`.
mod real_handlers {
    include!(concat!(env!("OUT_DIR"), "/real_handlers.rs"));
}

/// The functions of `stacked.rs`.
mod stacked {
    include!(concat!(env!("OUT_DIR"), "/stacked.rs"));
}

/// The functions of `settle.rs`.
mod settle {
    include!(concat!(env!("OUT_DIR"), "/settle.rs"));
}

/// The functions of `shared_policies.rs`.
mod shared_policies {
    include!(concat!(env!("OUT_DIR"), "/shared_policies.rs"));
}
