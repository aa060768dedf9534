//! The setting of what receives warnings.

use std::sync::Arc;

use super::{
    super::warning::{OnWarning, Warning},
    LimiterBuilder,
};

impl LimiterBuilder {
    /// Sets the function that is called for each [warning](crate::Check::warn_at): once for each caller and period,
    /// over all processes. It must not block.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use ratelimit_runtime::{Limiter, Policy};
    ///
    /// const API: Policy = Policy::fixed_window("api", Duration::from_secs(3600), 10);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (mails, sent) = mpsc::channel();
    /// let limiter = Limiter::builder()
    ///     .on_warning(move |warning| {
    ///         let left = warning.decision().remaining();
    ///         let _ = mails.send(format!("{}: {left} left", warning.caller_key()));
    ///     })
    ///     .in_memory();
    /// for _ in 0..10 {
    ///     limiter.check(&API, "alice").warn_at(80).await?;
    /// }
    /// assert_eq!(sent.try_iter().collect::<Vec<_>>(), ["alice: 2 left"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_warning(mut self, call: impl Fn(Warning) + Send + Sync + 'static) -> Self {
        self.on_warning = Some(OnWarning(Arc::new(call)));
        self
    }
}
