//! The rules of a policy, for the attribute's literals and for values that are known at run time.
//!
//! [`ratelimit-macros`](https://docs.rs/ratelimit-macros) applies them at compile time and
//! [`ratelimit-runtime`](https://docs.rs/ratelimit-runtime) to everything else. The errors of both
//! are the same. Depend on `ratelimit-runtime`, which re-exports [`Algorithm`], [`CalendarUnit`]
//! and [`MAX_TIERS`]. The rest is hidden and changes with the two crates, and the three are
//! released together.
//!
//! Floor 0: imports nothing but the standard library.

mod algorithm;
mod bounds;
mod fault;
#[doc(hidden)]
pub mod period;
#[doc(hidden)]
pub mod rules;

pub use algorithm::{Algorithm, CalendarUnit};
pub use bounds::MAX_TIERS;
pub use fault::PolicyFault;
