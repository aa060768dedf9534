//! `cargo run --features calendar --example algorithms`
//!
//! Compares the five algorithms at five calls per ten seconds, or per day for the calendar, with seven calls at once every
//! three seconds. It is the last day of a year, 15 seconds before midnight. A `+` is an admitted call, an `x` a refused
//! one. The paused clock is tokio's, and the program advances it. It prints
//!
//! ```text
//! second  sliding_window   sliding_counter  fixed_window     token_bucket     calendar_window
//!      0  +++++xx          +++++xx          +++++xx          +++++xx          +++++xx
//!      3  xxxxxxx          xxxxxxx          xxxxxxx          +xxxxxx          xxxxxxx
//!      6  xxxxxxx          xxxxxxx          xxxxxxx          ++xxxxx          xxxxxxx
//!      9  xxxxxxx          xxxxxxx          xxxxxxx          +xxxxxx          xxxxxxx
//!     12  +++++xx          +xxxxxx          +++++xx          ++xxxxx          xxxxxxx
//!     15  xxxxxxx          +xxxxxx          xxxxxxx          +xxxxxx          +++++xx
//!     18  xxxxxxx          ++xxxxx          xxxxxxx          ++xxxxx          xxxxxxx
//!     21  xxxxxxx          +xxxxxx          xxxxxxx          +xxxxxx          xxxxxxx
//!     24  +++++xx          +xxxxxx          +++++xx          ++xxxxx          xxxxxxx
//! ```

use ratelimit_runtime::{CalendarUnit, Policy, limiter, testing};
use tokio::time::{self, Duration};

const PERIOD: Duration = Duration::from_secs(10);
const POLICIES: [Policy; 5] = [
    Policy::sliding_window("example", PERIOD, 5),
    Policy::sliding_counter("example", PERIOD, 5),
    Policy::fixed_window("example", PERIOD, 5),
    Policy::token_bucket("example", PERIOD, 5),
    Policy::calendar_window("example", CalendarUnit::Day, 5),
];

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    testing::isolated(compare()).await;
}

async fn compare() {
    testing::at("2026-12-31T23:59:45Z");
    let limiter = limiter();
    print!("second");
    for policy in POLICIES {
        print!("  {:<15}", policy.algorithm().as_str());
    }
    println!();
    for second in (0..=24).step_by(3) {
        print!("{second:6}");
        for policy in POLICIES {
            let mut row = String::new();
            for _ in 0..7 {
                row.push(if limiter.check(&policy, "alice").await.is_ok() { '+' } else { 'x' });
            }
            print!("  {row:15}");
        }
        println!();
        time::advance(Duration::from_secs(3)).await;
    }
}
