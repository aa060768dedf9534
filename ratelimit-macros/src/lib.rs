//! The attribute of [`ratelimit-runtime`](https://docs.rs/ratelimit-runtime), which re-exports it:
//! depend on that crate.
//!
//! What was written (`args`) -> what is valid (`policy`) -> where it goes (`function`) -> what is
//! emitted (`expand`).

mod args;
mod boxed;
mod errors;
mod expand;
mod function;
mod policy;
#[allow(dead_code, reason = "shared with the runtime, which uses all of it")]
#[allow(unreachable_pub, reason = "public in the runtime")]
mod rules;
mod value;

use proc_macro::TokenStream;

/// Limits how often an `async fn` may be called.
///
/// Before the body runs, the call is counted under the function's path and the caller. When the
/// limit is reached, the function returns `FromRejection::from_rejection(error)` and the body does
/// not run: `Err(error.into())` for a `Result<_, E>` with `E: From<RateLimitError>`.
///
/// # Arguments
///
/// | argument | form | meaning | default |
/// |---|---|---|---|
/// | `period` | integer literal, seconds | length of the window | 60 |
/// | `threshold` | integer literal | calls admitted in any one period | 3 |
/// | `key` | an expression over the parameters with a `Display`, or a tuple of such | who the caller is | the ambient caller, `caller::scope` |
/// | `name` | string literal | replaces the function's path in the key | the function's path |
/// | `limiter` | an expression of type `Limiter`, `&Limiter` or `Arc<Limiter>` | which limiter decides | the installed one |
/// | `crate` | path | where the runtime crate is | `::ratelimit_runtime` |
///
/// Expressions are evaluated once, before the body, and only borrow what they name.
///
/// An `Option` in the key is a part of its own: `None` is one caller, and not the same as
/// `Some("")`.
///
/// The function's path is crate, modules, the type for methods, and the function. A trait's default
/// method is counted for each type it is called on; the arguments of a generic type or function
/// make no difference.
///
/// # Errors
///
/// Wrong arguments are compile errors at the argument, all of them at once; the function itself is
/// still emitted.
#[proc_macro_attribute]
pub fn rate_limit(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::rate_limit(arguments.into(), &item.into()).into()
}
