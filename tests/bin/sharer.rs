//! Waits for permits with 20 tasks until it is killed. Their calls last for 5 ms.
//!
//! Prints a line once it is connected, starts at a line of input, and prints a line for each admitted call.
//!
//! sharer URL PERMITS `TIMEOUT_MS`

use std::{
    env,
    io::{Write, stdin, stdout},
    time::Duration,
};

use ratelimit_runtime::{Limiter, OnStoreError, Policy};
use tokio::{task::JoinSet, time::sleep};

const TASKS: usize = 20;
const BODY: Duration = Duration::from_millis(5);
const MINUTE: Duration = Duration::from_secs(60);

fn print_line() {
    let mut stdout = stdout();
    // Its reader may have ended.
    let _ = writeln!(stdout).and_then(|()| stdout.flush());
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, permits, timeout] = arguments.as_slice() else {
        return Err("usage: sharer URL PERMITS TIMEOUT_MS".into());
    };
    let builder = Limiter::builder().deadline(Duration::from_secs(30));
    let limiter = builder.on_store_error(OnStoreError::Deny).connect(url).await?;
    let policy = Policy::concurrency_limit("shared", permits.parse()?)
        .concurrency_timeout(Duration::from_millis(timeout.parse()?));
    print_line();
    stdin().read_line(&mut String::new())?;
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            loop {
                let call = limiter.check(&policy, "alice").max_wait(MINUTE).await;
                print_line();
                sleep(BODY).await;
                drop(call.expect("a permit within a minute"));
            }
        });
    }
    tasks.join_all().await;
    Ok(())
}
