//! A process of a fleet: makes calls, prints a line, and stays until it is killed.
//!
//! counted URL VERSION CALLER=CALLS..    each caller has one call that is admitted

use std::{env, future::pending, time::Duration};

use ratelimit_runtime::{Limiter, Policy};

const COUNTED: Policy = Policy::fixed_window("counted", Duration::from_secs(86_400), 1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(url), Some(version)) = (arguments.next(), arguments.next()) else {
        return Err("usage: counted URL VERSION CALLER=CALLS..".into());
    };
    let builder = Limiter::builder().deadline(Duration::from_secs(10)).version(version);
    let builder = match env::var("CALLERS").as_deref() {
        Ok("shown") => builder.show_callers(),
        Ok("hidden") => builder,
        _ => builder.caller_digest("secret"),
    };
    let limiter = builder.connect(&url).await?;
    for argument in arguments {
        let (caller, calls) = argument.split_once('=').ok_or("a caller has calls")?;
        for _ in 0..calls.parse()? {
            let _ = limiter.check(&COUNTED, caller).await;
        }
    }
    println!("done");
    pending().await
}
