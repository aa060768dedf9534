//! `cargo run --example algorithms`
//!
//! Compares the four algorithms at five calls per ten seconds, with seven calls at once every three
//! seconds. A `+` is an admitted call, a `.` a refused one. The paused clock is tokio's, and the
//! program advances it.

use ratelimit_runtime::{Limiter, Policy};
use tokio::time::{self, Duration};

const PERIOD: Duration = Duration::from_secs(10);
const POLICIES: [Policy; 4] = [
    Policy::sliding_window("example", PERIOD, 5),
    Policy::sliding_counter("example", PERIOD, 5),
    Policy::fixed_window("example", PERIOD, 5),
    Policy::token_bucket("example", PERIOD, 5),
];

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let limiter = Limiter::in_memory();
    print!("second");
    for policy in POLICIES {
        print!("  {:15}", policy.algorithm().as_str());
    }
    println!();
    for second in (0..=24).step_by(3) {
        print!("{second:6}");
        for policy in POLICIES {
            let mut row = String::new();
            for _ in 0..7 {
                row.push(if limiter.check(&policy, "alice").await.is_ok() { '+' } else { '.' });
            }
            print!("  {row:15}");
        }
        println!();
        time::advance(Duration::from_secs(3)).await;
    }
}
