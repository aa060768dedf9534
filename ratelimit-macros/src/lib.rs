//! The attribute `#[rate_limit]` of [`ratelimit-runtime`](https://docs.rs/ratelimit-runtime).
//! Depend on that crate, which re-exports it.
//!
//! The stages, one file each: the arguments as written (`args`), the valid limit (`limit`), the
//! annotated item (`function`), the emitted code (`check`, `prologue`, `assemble`), and all of them
//! in turn (`expand`). Errors of all stages are collected (`errors`).
//!
//! This crate depends on `ratelimit-core` for the rules, and never on the runtime.

mod answer;
mod args;
mod assemble;
mod boxed_future;
mod check;
mod combinations;
mod completion;
mod errors;
mod expand;
mod fallible;
mod function;
mod grammar;
mod limit;
mod names;
mod page;
mod prologue;
mod return_type;
mod settle;
mod shared;
mod stacked;
mod store_error;
mod tiers;
mod together;
mod tokens;
mod value;

use proc_macro::TokenStream;

// The manual is at the re-export of the runtime, where its examples compile.
#[allow(missing_docs, reason = "the manual is the runtime's")]
#[proc_macro_attribute]
pub fn rate_limit(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::rate_limit(arguments.into(), &item.into()).into()
}

/// Returns a page of the runtime's documentation, by its path in that crate, for an attribute
/// `doc`.
#[doc(hidden)]
#[proc_macro]
pub fn page(path: TokenStream) -> TokenStream {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo names the folder");
    let path = format!("{folder}/{}", path.to_string().trim_matches('"'));
    let page = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    proc_macro::TokenTree::from(proc_macro::Literal::string(&page::for_rustdoc(&page))).into()
}
