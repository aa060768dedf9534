//! `cargo bench -p ratelimit-benches --bench regions`
//!
//! One limit over three regions, whose limiters reach one Redis by links of 2, 80 and 150 ms: a
//! sliding window of 5 000 in ten seconds, of which each asks for 330 calls a second, without
//! leases and with leases of 200 ms, 500 ms and one second. Shows the fullest real window, the
//! admitted calls beside those without leases, and the time of a call by region. One run of 32 s
//! each.
//!
//! A window is full of calls that were asked and answered within it, by the machine's clock. So
//! each of them was decided in it. The fullest window by receipt counts those that were answered
//! within it: a reply that takes longer than another moves calls of an exact window together.
//!
//! Fails on a window above the threshold under a lease, and if it sees no full window.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use ratelimit_benches::{
    figures::report,
    server::{Result, Server},
};
use ratelimit_runtime::{Limiter, OnStoreError, Policy, RateLimitError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp},
    sync::mpsc,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

const PERIOD: Duration = Duration::from_secs(10);
const THRESHOLD: u32 = 5_000;

/// The round trips of the links, in milliseconds.
const LINKS: [u64; 3] = [2, 80, 150];

/// The leases in milliseconds; none for 0.
const LEASES: [u64; 4] = [0, 200, 500, 1_000];

/// The time between two calls of a region.
const EVERY: Duration = Duration::from_micros(1_000_000 / 330);

const RUN: Duration = Duration::from_secs(32);

#[tokio::main]
async fn main() -> Result<()> {
    let (mut failures, mut direct) = (Vec::new(), 0.);
    for lease in LEASES {
        let run = run(lease).await?;
        let name = |what: &str| match lease {
            0 => format!("three regions, no lease: {what}"),
            _ => format!("three regions, lease of {lease} ms: {what}"),
        };
        let bar = if lease == 0 { "-".to_owned() } else { format!("at most {THRESHOLD}") };
        let fullest = run.fullest(|call| call.asked);
        report(&name("fullest window, units"), vec![fullest.into()], &bar);
        let by_receipt = run.fullest(|call| call.answered);
        report(&name("fullest window by receipt, units"), vec![by_receipt.into()], "-");
        let admitted = run.count(Some(true));
        if lease == 0 {
            direct = admitted;
        }
        report(&name("admitted, % of those without leases"), vec![100. * admitted / direct], "-");
        report(&name("calls without a decision"), vec![run.count(None)], "-");
        for (link, [median, most]) in LINKS.iter().zip(run.times()) {
            report(&name(&format!("ms of a call over {link} ms, median")), vec![median], "-");
            report(&name(&format!("ms of a call over {link} ms, 90 %")), vec![most], "-");
        }
        if lease > 0 && fullest > THRESHOLD {
            failures.push(name(&format!("{fullest} units in a window of {THRESHOLD}")));
        }
        if by_receipt < THRESHOLD * 9 / 10 {
            failures.push(name(&format!("no window is full: {by_receipt} units")));
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ").into()) }
}

/// A call of a region.
struct Call {
    region: usize,
    asked: Instant,
    answered: Instant,
    /// None if no store has decided in time.
    is_admitted: Option<bool>,
}

struct Calls(Vec<Call>);

impl Calls {
    /// Returns the most calls that were answered within a window, and of which `from` was in it
    /// too.
    fn fullest(&self, from: impl Fn(&Call) -> Instant) -> u32 {
        let admitted = || self.0.iter().filter(|call| call.is_admitted == Some(true));
        let mut starts: Vec<_> = admitted().map(&from).collect();
        let mut ends: Vec<_> = admitted().map(|call| call.answered).collect();
        starts.sort_unstable();
        ends.sort_unstable();
        // Who was answered before its end, without those who had begun before its start: no call
        // takes a window.
        let within = |(answered, end): (usize, &Instant)| {
            let before = starts.partition_point(|start| *start + PERIOD <= *end);
            u32::try_from((answered + 1).saturating_sub(before)).unwrap_or(u32::MAX)
        };
        ends.iter().enumerate().map(within).max().unwrap_or(0)
    }

    #[expect(clippy::cast_precision_loss, reason = "a number of calls")]
    fn count(&self, is_admitted: Option<bool>) -> f64 {
        self.0.iter().filter(|call| call.is_admitted == is_admitted).count() as f64
    }

    /// Returns the median and the ninth decile of the milliseconds of each region's calls.
    fn times(&self) -> [[f64; 2]; LINKS.len()] {
        std::array::from_fn(|region| {
            let of_region = self.0.iter().filter(|call| call.region == region);
            let mut times: Vec<_> = of_region.map(|call| call.answered - call.asked).collect();
            times.sort_unstable();
            [times.len() / 2, times.len() * 9 / 10].map(|at| times[at].as_secs_f64() * 1e3)
        })
    }
}

/// Lets the regions call.
async fn run(lease: u64) -> Result<Calls> {
    let server = Server::start(&[])?;
    let policy = Policy::sliding_window("regions", PERIOD, THRESHOLD);
    let policy = if lease == 0 { policy } else { policy.lease(Duration::from_millis(lease)) };
    let calls = Arc::new(Mutex::new(Vec::new()));
    let mut regions = Vec::new();
    for link in LINKS {
        let url = start_link(server.port, Duration::from_millis(link) / 2).await?;
        let builder = Limiter::builder().deadline(Duration::from_secs(1));
        let limiter = builder.on_store_error(OnStoreError::Deny).connect(&url).await?;
        // Knows the server's script.
        limiter.peek(&policy, "all").await?;
        regions.push(limiter);
    }
    let end = Instant::now() + RUN;
    let mut tasks = JoinSet::new();
    for (region, limiter) in regions.into_iter().enumerate() {
        let calls = Arc::clone(&calls);
        tasks.spawn(async move {
            let (mut ticks, mut asked) = (interval(EVERY), JoinSet::new());
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            while ticks.tick().await < end {
                let (limiter, calls) = (limiter.clone(), Arc::clone(&calls));
                asked.spawn(async move {
                    let asked = Instant::now();
                    let is_admitted = match limiter.check(&policy, "all").await {
                        Ok(_) => Some(true),
                        Err(RateLimitError::Exceeded(_)) => Some(false),
                        Err(_) => None,
                    };
                    let call = Call { region, asked, answered: Instant::now(), is_admitted };
                    calls.lock().expect("no call panics").push(call);
                });
            }
            asked.join_all().await;
        });
    }
    tasks.join_all().await;
    let calls = std::mem::take(&mut *calls.lock().expect("no call panics"));
    Ok(Calls(calls))
}

/// Starts a link to a port, on which all bytes take this long in each direction. Returns its URL.
async fn start_link(port: u16, delay: Duration) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("redis://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
            for end in [&client, &server] {
                let _ = end.set_nodelay(true);
            }
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::spawn(carry(from_client, to_server, delay));
            tokio::spawn(carry(from_server, to_client, delay));
        }
    });
    Ok(url)
}

/// Carries bytes from one end to the other, each after the delay.
async fn carry(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf, delay: Duration) {
    let (sender, mut under_way) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::spawn(async move {
        while let Some((due, bytes)) = under_way.recv().await {
            sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if sender.send((Instant::now() + delay, buffer[..read].to_vec())).is_err() {
            return;
        }
    }
}
