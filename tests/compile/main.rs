//! Valid functions compile, mistakes are errors at their token, and the compiler and the runtime apply the
//! same rules.

include!("../macro_modules.rs");

mod arguments;
mod completion_in_editors;
#[path = "../fuzz/corpus.rs"]
mod corpus;
mod fuzz_corpus;
mod pages;
mod pairs;
#[path = "../fuzz/properties/mod.rs"]
mod properties;
mod same_rules;
mod ui;
