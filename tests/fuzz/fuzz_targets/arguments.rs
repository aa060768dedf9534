//! Whatever stands in the attribute, and on whatever: no panic, and the item is still there.
#![no_main]
#![allow(dead_code, reason = "the runtime uses all of the rules")]

#[path = "../../../ratelimit-macros/src/args.rs"]
mod args;
#[path = "../../../ratelimit-macros/src/boxed.rs"]
mod boxed;
#[path = "../../../ratelimit-macros/src/errors.rs"]
mod errors;
#[path = "../../../ratelimit-macros/src/expand.rs"]
mod expand;
#[path = "../../../ratelimit-macros/src/function.rs"]
mod function;
#[path = "../../../ratelimit-macros/src/policy.rs"]
mod policy;
#[path = "../../../ratelimit-macros/src/rules/mod.rs"]
mod rules;
#[path = "../../../ratelimit-macros/src/value.rs"]
mod value;

use libfuzzer_sys::fuzz_target;
use proc_macro2::TokenStream;

// The arguments, and after a line of `---` the item.
fuzz_target!(|text: &str| {
    let (arguments, item) = text.split_once("\n---\n").unwrap_or((text, "async fn f() -> R {}"));
    let (Ok(arguments), Ok(item)) = (arguments.parse::<TokenStream>(), item.parse()) else {
        return;
    };
    let expansion = expand::rate_limit(arguments, &item);
    assert!(!expansion.is_empty() || item.is_empty());
});
