//! `cargo bench -p ratelimit-benches --bench permits`
//!
//! The cost of permits and settles to a Redis server: microseconds of processor time in their
//! commands, from `INFO commandstats`, beside calls that need neither. Each round takes, refuses,
//! settles and releases the calls of 2 000 callers. Figures are medians with the lowest and the
//! highest round, and the median of the ratios to an admitted call without a permit or settle in
//! the same round.

use std::time::Duration;

use ratelimit_benches::{
    figures::{figure, ratios, report_ratio, spread},
    on_redis,
    rounds::rounds,
    server::{Result, Server},
};
use ratelimit_runtime::{Decision, Limiter, Policy, RateLimitError};
use tokio::runtime::{Builder, Runtime};

const HOUR: Duration = Duration::from_secs(3_600);
const BUCKET: Policy = Policy::token_bucket("bucket", HOUR, 1_000_000);
const BUCKET_AND_PERMIT: Policy = BUCKET.named("bucket-and-permit").concurrency(1);
const PERMIT: Policy = Policy::concurrency_limit("permit", 1);
const LOG: Policy = Policy::sliding_window("log", HOUR, 1_000_000);

/// The permits that one command renews, and how often a round sends it.
const RENEWALS: [(u32, usize); 3] = [(1, 2_000), (20, 500), (1_000, 20)];
const RENEW: &str = include_str!("../ratelimit-runtime/src/redis/script/renew.lua");
const TIMEOUT: Duration = Duration::from_secs(30);

const TASKS: u32 = 20;
const CALLS: u32 = 100;

type Answer = std::result::Result<Decision, RateLimitError>;

/// A name, the name of the row that it is measured against, and the microseconds of each round.
type Row = (String, &'static str, Vec<f64>);

/// A server, a limiter on it, and the rows.
struct Bench {
    server: Server,
    runtime: Runtime,
    limiter: &'static Limiter,
    rows: Vec<Row>,
}

fn main() -> Result<()> {
    let server = Server::start(&[])?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let limiter = runtime.block_on(on_redis::limiter(&server.url(), 0))?;
    let mut bench = Bench { server, runtime, limiter, rows: Vec::new() };
    let renewals = RENEWALS.map(|(permits, _)| format!("renewal of {permits}"));
    // The first round brings the scripts.
    bench.round(&renewals)?;
    bench.rows.clear();
    for _ in 0..rounds(15) {
        bench.round(&renewals)?;
    }
    bench.print();
    Ok(())
}

impl Bench {
    fn round(&mut self, renewals: &[String]) -> Result<()> {
        let bucket =
            self.measure("token_bucket", "token_bucket", "evalsha", |it| it.take(&BUCKET, 2))?;
        self.measure("its settle, fewer units", "token_bucket", "evalsha", |it| {
            it.settle(&bucket, 1)
        })?;
        let both = self.measure("with a permit", "token_bucket", "evalsha", |it| {
            it.take(&BUCKET_AND_PERMIT, 1)
        })?;
        self.measure("no permit free", "token_bucket", "evalsha", |it| {
            it.refuse(&BUCKET_AND_PERMIT)
        })?;
        self.measure("release", "token_bucket", "zrem", |it| it.release(both))?;
        let alone =
            self.measure("permit alone", "token_bucket", "evalsha", |it| it.take(&PERMIT, 1))?;
        self.measure("no permit free, alone", "token_bucket", "evalsha", |it| it.refuse(&PERMIT))?;
        self.release(alone)?;
        for ((permits, times), name) in RENEWALS.into_iter().zip(renewals) {
            self.measure(name, "token_bucket", "evalsha", |it| it.renew(permits, times))?;
        }
        let log = self.measure("a window with costs", "a window with costs", "evalsha", |it| {
            it.take(&LOG, 100)
        })?;
        self.measure("its settle, fewer units ", "a window with costs", "evalsha", |it| {
            it.settle(&log, 50)
        })?;
        let log = self.take(&LOG, 100)?;
        self.measure("its settle, more units", "a window with costs", "evalsha", |it| {
            it.settle(&log, 150)
        })
    }

    /// Adds the server's microseconds for each of these commands to a row.
    fn measure<T>(
        &mut self,
        name: &str,
        base: &'static str,
        command: &str,
        run: impl FnOnce(&Self) -> Result<T>,
    ) -> Result<T> {
        self.server.command::<()>(&["CONFIG", "RESETSTAT"])?;
        let output = run(self)?;
        let micros = self.server.micros_per_call(command)?;
        match self.rows.iter_mut().find(|row| row.0 == name) {
            Some((_, _, rounds)) => rounds.push(micros),
            None => self.rows.push((name.to_owned(), base, vec![micros])),
        }
        Ok(output)
    }

    /// Calls for each caller, many at one time.
    fn call(&self, policy: &'static Policy, cost: u32) -> Vec<Answer> {
        let limiter = self.limiter;
        self.runtime.block_on(async {
            let task = |task: u32| async move {
                let mut answers = Vec::new();
                for number in 0..CALLS {
                    answers.push(limiter.check(policy, task * CALLS + number).cost(cost).await);
                }
                answers
            };
            let tasks: Vec<_> = (0..TASKS).map(|it| tokio::spawn(task(it))).collect();
            let mut answers = Vec::new();
            for task in tasks {
                answers.extend(task.await.expect("a call does not panic"));
            }
            answers
        })
    }

    fn take(&self, policy: &'static Policy, cost: u32) -> Result<Vec<Decision>> {
        self.call(policy, cost).into_iter().map(|answer| Ok(answer?)).collect()
    }

    fn refuse(&self, policy: &'static Policy) -> Result<()> {
        let is_busy = |answer: &Answer| matches!(answer, Err(RateLimitError::Busy(_)));
        if self.call(policy, 1).iter().all(is_busy) {
            Ok(())
        } else {
            Err("a permit is free".into())
        }
    }

    fn settle(&self, decisions: &[Decision], units: u32) -> Result<()> {
        self.runtime.block_on(async {
            for decision in decisions {
                decision.settle(units);
            }
            Ok(self.limiter.flush().await?)
        })
    }

    fn release(&self, decisions: Vec<Decision>) -> Result<()> {
        self.runtime.block_on(async {
            drop(decisions);
            Ok(self.limiter.flush().await?)
        })
    }

    fn renew(&self, permits: u32, times: usize) -> Result<()> {
        let mut connection = self.server.connect()?;
        let sha: String = redis::cmd("SCRIPT").arg("LOAD").arg(RENEW).query(&mut connection)?;
        let mut pipe = redis::pipe();
        for _ in 0..times {
            pipe.cmd("EVALSHA").arg(&sha).arg(1).arg(format!("permits-{permits}"));
            pipe.arg(TIMEOUT.as_micros().to_string()).arg(permits);
            for id in 0..u64::from(permits) {
                pipe.arg(1_000_000_000_000_000 + id);
            }
        }
        Ok(pipe.exec(&mut connection)?)
    }

    fn print(&self) {
        println!("{:32}{:>24}{:>8}", "server time", "us", "x");
        for (name, base, own) in &self.rows {
            let (_, _, base_rounds) = self.rows.iter().find(|row| row.0 == *base).expect("a row");
            let ratios = ratios(own, base_rounds);
            println!("{name:32}{:>24}{:8.2}", figure(own.clone(), 1), spread(ratios.clone())[1]);
            if name != base {
                report_ratio(&format!("{name}: server time to {base}"), ratios, "-");
            }
        }
    }
}
