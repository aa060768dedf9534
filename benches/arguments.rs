//! `cargo bench -p ratelimit-benches --bench arguments`
//!
//! The cost of arguments that do more than count a call, beside the same call without them:
//! nanoseconds in memory, and commands on Redis. There a server tells, by `MONITOR`, which commands
//! clients have sent and which scripts have called. A case that sends more than its bound fails the
//! run.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use ratelimit_benches::{
    figures::{ratios, report_ratio},
    on_redis,
    rounds::{Contender, compare},
    server::{Result, Server},
    with_arguments::{CASES, Case},
};
use ratelimit_runtime::Limiter;
use tokio::runtime::Builder;

const TASKS: u32 = 64;
const CALLS: u32 = 20;

fn main() -> Result<()> {
    in_memory();
    on_redis()
}

fn in_memory() {
    let limiter = Limiter::in_memory();
    let limiter = &limiter;
    let contender = |case: &'static Case| -> Contender<'_> {
        (case.name, Box::new(move |user| (case.in_memory)(limiter, user)))
    };
    let rounds = compare("arguments: ", 1, 1, &CASES.each_ref().map(contender));
    for (case, own) in CASES.iter().zip(&rounds) {
        let base = CASES.iter().position(|it| it.name == case.base).expect("a case");
        if case.base != case.name {
            let what = format!("{}: time in memory to {}", case.name, case.base);
            report_ratio(&what, ratios(own, &rounds[base]), "-");
        }
    }
}

/// Counts the commands of each case, in calls of many tasks at one time.
fn on_redis() -> Result<()> {
    let server = Server::start(&[])?;
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let limiter = runtime.block_on(on_redis::limiter(&server.url(), 0))?;
    let mut monitor = Monitor::start(&server)?;
    println!("\n{:32}{:>12}{:>12}{:>12}", "on Redis, of each call", "sent", "in scripts", "reads");
    let mut over = Vec::new();
    for case in &CASES {
        let run = || {
            runtime.block_on(async {
                let task = |task: u32| async move {
                    for number in 0..CALLS {
                        (case.on_redis)(limiter, task * CALLS + number).await;
                    }
                };
                let tasks: Vec<_> = (0..TASKS).map(|it| tokio::spawn(task(it))).collect();
                for task in tasks {
                    task.await.expect("a call does not panic");
                }
                limiter.flush().await
            })
        };
        // The server has the scripts then, and the callers' states; some of them refuse.
        for _ in 0..3 {
            run()?;
        }
        monitor.count(&server)?;
        let reads = server.info("total_reads_processed")?;
        run()?;
        let of = |number: f64| number / f64::from(TASKS * CALLS);
        let reads = of(server.info("total_reads_processed")? - reads);
        let (sent, in_scripts) = monitor.count(&server)?;
        println!("{:32}{:12.2}{:12.2}{reads:12.2}", case.name, of(sent), of(in_scripts));
        if of(sent) > f64::from(case.commands) {
            over.push(case.name);
        }
    }
    if over.is_empty() { Ok(()) } else { Err(format!("too many commands: {over:?}").into()) }
}

/// A connection on which a server tells what it executes.
struct Monitor(BufReader<TcpStream>);

impl Monitor {
    fn start(server: &Server) -> Result<Self> {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port))?;
        stream.write_all(b"MONITOR\r\n")?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Returns the commands since the last count: those that clients sent, and those that scripts
    /// called.
    fn count(&mut self, server: &Server) -> Result<(f64, f64)> {
        server.command::<String>(&["ECHO", "end of the count"])?;
        let (mut sent, mut in_scripts) = (0., 0.);
        for line in self.0.by_ref().lines() {
            let line = line?;
            if line.contains("end of the count") {
                return Ok((sent, in_scripts));
            }
            if line.contains(" lua] ") {
                in_scripts += 1.;
            } else if !["\"CLIENT\"", "\"INFO\"", "+OK"].iter().any(|it| line.contains(it)) {
                sent += 1.;
            }
        }
        Err("the server has ended".into())
    }
}
