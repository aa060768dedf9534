//! The limiter of the process.

use once_cell::sync::{Lazy, OnceCell};

use super::Limiter;
use crate::{error::AlreadyInstalled, registry};

static INSTALLED: OnceCell<Limiter> = OnceCell::new();
static EMBEDDED: Lazy<Limiter> = Lazy::new(Limiter::in_memory);

/// Makes `limiter` the one that annotated functions use when they name none, for the rest of the
/// process. Until then they are served by an embedded limiter in memory.
///
/// # Errors
///
/// [`AlreadyInstalled`] after the first time.
pub fn install(limiter: Limiter) -> Result<(), AlreadyInstalled> {
    registry::warn_of_conflicts();
    INSTALLED.set(limiter).map_err(|_| AlreadyInstalled)
}

/// The installed limiter, or the embedded one while there is none.
pub(crate) fn installed() -> &'static Limiter {
    INSTALLED.get().unwrap_or_else(|| &EMBEDDED)
}
