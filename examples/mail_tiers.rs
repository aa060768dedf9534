//! `cargo run --example mail_tiers`
//!
//! A mailbox admits one mail a minute, five an hour and ten a day. The three tiers are decided
//! together: a refused mail is charged to none. The refusal contains the tier and the wait. The
//! paused clock is tokio's, and the program advances it, so that the day takes no time. It prints
//!
//! ```text
//!     0 s  mail 1 is sent
//!     0 s  refused: 1 per 60s, wait 60s
//!    60 s  mail 2 is sent
//!    60 s  refused: 1 per 60s, wait 60s
//!   120 s  mail 3 is sent
//!   120 s  refused: 1 per 60s, wait 60s
//!   180 s  mail 4 is sent
//!   180 s  refused: 1 per 60s, wait 60s
//!   240 s  mail 5 is sent
//!   240 s  refused: 5 per 3600s, wait 3360s
//!  3600 s  mail 6 is sent
//!  3600 s  refused: 1 per 60s, wait 60s
//!  3660 s  mail 7 is sent
//!  3660 s  refused: 1 per 60s, wait 60s
//!  3720 s  mail 8 is sent
//!  3720 s  refused: 1 per 60s, wait 60s
//!  3780 s  mail 9 is sent
//!  3780 s  refused: 1 per 60s, wait 60s
//!  3840 s  mail 10 is sent
//!  3840 s  refused: 10 per 86400s, wait 82560s
//! 86400 s  mail 11 is sent
//! ```

use ratelimit_runtime::{Limiter, Policy, RateLimitError};
use tokio::time::{self, Duration};

const HOUR: Duration = Duration::from_secs(60 * 60);
pub(crate) const MAIL: Policy = Policy::sliding_window("mail", Duration::from_secs(60), 1)
    .tier(HOUR, 5)
    .tier(HOUR.saturating_mul(24), 10);

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), RateLimitError> {
    let limiter = Limiter::in_memory();
    let start = time::Instant::now();
    let mut sent = 0;
    while sent < 11 {
        let at = start.elapsed().as_secs();
        match limiter.check(&MAIL, "alice@example.com").await {
            Ok(_) => {
                sent += 1;
                println!("{at:5} s  mail {sent} is sent");
            }
            Err(RateLimitError::Exceeded(refused)) => {
                let (threshold, period) = (refused.threshold(), refused.period());
                let wait = refused.retry_after();
                println!("{at:5} s  refused: {threshold} per {period:?}, wait {wait:?}");
                time::advance(wait).await;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
