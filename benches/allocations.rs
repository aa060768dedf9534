//! `cargo bench -p ratelimit-benches --bench allocations`
//!
//! Allocations of a decision on Redis: of the whole process, the client's own task included, on a
//! runtime of one thread with 64 tasks.

use ratelimit_benches::{
    figures::report,
    load::CALLERS,
    on_redis::{call, limiter},
    rounds::rounds,
    server::{Result, Server},
};
use tokio::runtime::Builder;

const TASKS: u32 = 64;
const CALLS: u32 = 500;

fn main() -> Result<()> {
    let server = Server::start(&[])?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let limiter = runtime.block_on(limiter(&server.url(), 0))?;
    for (what, is_admitted) in [("admitted", true), ("refused", false)] {
        let run = |calls: u32| {
            runtime.block_on(async {
                let task = |task: u32| async move {
                    for number in 0..calls {
                        call(limiter, is_admitted, (task * calls + number) % CALLERS).await;
                    }
                };
                let tasks: Vec<_> = (0..TASKS).map(|it| tokio::spawn(task(it))).collect();
                for task in tasks {
                    task.await.expect("a call does not panic");
                }
            });
        };
        // Buffers that grow once have grown.
        run(CALLS);
        // The tasks themselves are in both.
        let rounds: Vec<_> = (0..rounds(5))
            .map(|_| {
                let few = allocation_counter::measure(|| run(CALLS / 5));
                let many = allocation_counter::measure(|| run(CALLS));
                let calls = f64::from(TASKS * (CALLS - CALLS / 5));
                let each = |few: u64, many: u64| {
                    f64::from(u32::try_from(many - few).expect("not so many")) / calls
                };
                (each(few.count_total, many.count_total), each(few.bytes_total, many.bytes_total))
            })
            .collect();
        let (counts, bytes): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
        report(&format!("allocations of a decision, {what}"), counts, "at most 5");
        report(&format!("bytes allocated for a decision, {what}"), bytes, "-");
    }
    Ok(())
}
