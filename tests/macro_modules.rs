// The modules of the proc-macro crate. It exports nothing but its macros, so they are taken in by their
// paths, at the root of a crate: `compile/main.rs` and `fuzz/lib.rs` include this file.

#[path = "../ratelimit-macros/src/answer.rs"]
mod answer;
#[path = "../ratelimit-macros/src/args.rs"]
mod args;
#[path = "../ratelimit-macros/src/assemble.rs"]
mod assemble;
#[path = "../ratelimit-macros/src/boxed_future.rs"]
mod boxed_future;
#[path = "../ratelimit-macros/src/check.rs"]
mod check;
#[path = "../ratelimit-macros/src/combinations.rs"]
mod combinations;
#[path = "../ratelimit-macros/src/completion.rs"]
mod completion;
#[path = "../ratelimit-macros/src/errors.rs"]
mod errors;
#[path = "../ratelimit-macros/src/expand.rs"]
mod expand;
#[path = "../ratelimit-macros/src/fallible.rs"]
mod fallible;
#[path = "../ratelimit-macros/src/function.rs"]
mod function;
#[path = "../ratelimit-macros/src/grammar.rs"]
mod grammar;
#[path = "../ratelimit-macros/src/limit.rs"]
mod limit;
#[path = "../ratelimit-macros/src/names.rs"]
mod names;
#[path = "../ratelimit-macros/src/prologue.rs"]
mod prologue;
#[path = "../ratelimit-macros/src/return_type.rs"]
mod return_type;
#[path = "../ratelimit-macros/src/settle.rs"]
mod settle;
#[path = "../ratelimit-macros/src/shared.rs"]
mod shared;
#[path = "../ratelimit-macros/src/stacked.rs"]
mod stacked;
#[path = "../ratelimit-macros/src/store_error.rs"]
mod store_error;
#[path = "../ratelimit-macros/src/tiers.rs"]
mod tiers;
#[path = "../ratelimit-macros/src/together.rs"]
mod together;
#[path = "../ratelimit-macros/src/tokens.rs"]
mod tokens;
#[path = "../ratelimit-macros/src/value.rs"]
mod value;
