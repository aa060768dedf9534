//! The attribute of [`ratelimit-runtime`](https://docs.rs/ratelimit-runtime), which re-exports it:
//! depend on that crate.
//!
//! What was written (`args`) -> what is valid (`limit`) -> where it goes (`function`) -> what is
//! emitted (`expand`).

mod args;
mod boxed_future;
mod errors;
mod expand;
mod fallible;
mod function;
mod limit;
mod stacked;
mod value;

use proc_macro::TokenStream;

// Its manual stands where the runtime re-exports it: the examples there compile.
#[allow(missing_docs, reason = "the manual is the runtime's")]
#[proc_macro_attribute]
pub fn rate_limit(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::rate_limit(arguments.into(), &item.into()).into()
}
