//! The limiter of the process.

use once_cell::sync::OnceCell;

use super::{Limiter, builder::URL_VARIABLE, environment};
use crate::{error::AlreadyInstalled, registry};

static INSTALLED: OnceCell<Limiter> = OnceCell::new();
static EMBEDDED: OnceCell<Limiter> = OnceCell::new();

/// Installs the limiter of annotated functions without an argument `limiter`, for the rest of the
/// process. Until then an embedded limiter in memory decides their calls. If `RATELIMIT_URL` is
/// set, that is logged once at `warn`.
///
/// Build a limiter on Redis in a tokio runtime that lasts as long as the process, such as that of
/// `main`: it carries the bytes of the connection. The page
/// [`guide::testing`](crate::guide::testing) shows tests with limiters of their own.
///
/// # Errors
///
/// [`AlreadyInstalled`] if a limiter is installed already.
pub fn install(limiter: Limiter) -> Result<(), AlreadyInstalled> {
    registry::warn_of_conflicts();
    INSTALLED.set(limiter).map_err(|_| AlreadyInstalled)
}

/// Returns the [installed](install) limiter, or the embedded one in memory while there is none.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Policy, limiter};
///
/// const EXPORT: Policy = Policy::sliding_window("export", Duration::from_secs(60), 5);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
/// limiter().check(&EXPORT, "alice").await?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn limiter() -> &'static Limiter {
    #[cfg(feature = "testing")]
    if let Some(isolated) = super::isolated::isolated_limiter() {
        return isolated;
    }
    INSTALLED.get().or_else(|| EMBEDDED.get()).unwrap_or_else(first_embedded)
}

/// Returns the embedded limiter at its first use, and warns if a store is named that it does not
/// use.
#[cold]
fn first_embedded() -> &'static Limiter {
    let mut is_first = false;
    let embedded = EMBEDDED.get_or_init(|| {
        is_first = true;
        Limiter::in_memory()
    });
    // A subscriber is foreign code, and may have limited functions itself.
    if is_first && !matches!(environment::variable(URL_VARIABLE), Ok(None)) {
        tracing::warn!(
            "{URL_VARIABLE} is set, and no limiter is installed that reads it: calls are counted in this process alone; \
             write `install(Limiter::from_env().await?)?` at the start of `main`"
        );
    }
    embedded
}
