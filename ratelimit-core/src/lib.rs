//! The rules of a policy, for the attribute's literals and for values that are known at run time.
//!
//! [`ratelimit-macros`](https://docs.rs/ratelimit-macros) applies them at compile time and
//! [`ratelimit-runtime`](https://docs.rs/ratelimit-runtime) to everything else. The errors of both
//! are the same. Depend on `ratelimit-runtime`, which re-exports what is public of it; the rest
//! changes with the two crates, and the three are released together.
//!
//! Floor 0: imports nothing but the standard library.

mod algorithm;
mod fault;
pub mod period;
pub mod rules;

pub use algorithm::Algorithm;
pub use fault::PolicyFault;
pub use rules::MAX_TIERS;
