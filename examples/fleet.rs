//! `cargo run --features overrides --example fleet`
//!
//! Two processes share limits on a Redis that is started here. In the line, calls of both wait for their turns, and four
//! would wait for too long. Under the lease, a process takes units from Redis for a second, and decides in memory: of
//! a thousand units, those that nobody used in time are lost. The override is written once, and both follow it. It takes some five seconds, and needs a `redis-server`. It prints
//!
//! ```text
//! line: 4 calls get a turn, the last one after ..s, and 4 would wait for too long
//! lease: .. of 4000 calls are admitted, .. of them by Redis itself
//! as written: 2 of 20 calls are admitted
//! override: 3 more of 20 calls are admitted
//! ```

use std::{
    env,
    error::Error,
    process::{self, Stdio},
    time::Duration,
};

use ratelimit_runtime::{
    DecidedBy, Limiter, OnStoreError, Override, Policy, RateLimitError, install, rate_limit,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, stdin},
    process::{Child, ChildStdout, Command},
    task::JoinSet,
    time::{Instant, sleep},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Two calls in three seconds, first come, first served.
#[rate_limit(name = "report", period = "3s", threshold = 2, key = "all", max_wait = "4s")]
async fn report() -> std::result::Result<(), RateLimitError> {
    Ok(())
}

/// A busy key: Redis is asked a few times a second, however many calls there are.
pub(crate) const INGEST: Policy =
    Policy::sliding_window("ingest", Duration::from_secs(60), 1_000).lease(Duration::from_secs(1));

#[rate_limit(name = "reply", period = "1m", threshold = 2, key = user)]
async fn reply(user: &str) -> std::result::Result<(), RateLimitError> {
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // Without Redis no call is admitted, rather than by the counts of one process.
    let limiter =
        Limiter::builder().deadline(Duration::from_secs(5)).on_store_error(OnStoreError::Deny);
    if env::args().nth(1).is_some() {
        return process(limiter.from_env().await?).await;
    }
    let (url, _redis) = start_redis().await?;
    let limiter = limiter.connect(&url).await?;
    let (mut one, mut other) = (Process::start(&url).await?, Process::start(&url).await?);

    let start = Instant::now();
    let [turns, refused] = Process::both(&mut one, &mut other, "line").await?;
    let last = start.elapsed();
    println!(
        "line: {turns} calls get a turn, the last one after {last:.1?}, and {refused} would wait for too long"
    );

    let [admitted, asked] = Process::both(&mut one, &mut other, "lease").await?;
    println!("lease: {admitted} of 4000 calls are admitted, {asked} of them by Redis itself");

    let [admitted, _] = Process::both(&mut one, &mut other, "reply").await?;
    println!("as written: {admitted} of 20 calls are admitted");
    limiter.overrides().fleet().set("reply", Override::new().threshold(5)).await?;
    let [more, _] = Process::both(&mut one, &mut other, "override").await?;
    println!("override: {more} more of 20 calls are admitted");
    Ok(())
}

/// One process of the fleet: reads what it is to do, and prints two counts of its calls.
async fn process(limiter: Limiter) -> Result<()> {
    install(limiter.clone())?;
    println!("ready");
    let mut commands = BufReader::new(stdin()).lines();
    while let Some(command) = commands.next_line().await? {
        let [first, second] = match command.as_str() {
            "line" => wait_in_line().await,
            "lease" => ingest(&limiter).await,
            command => {
                while command == "override" && limiter.overrides().list().is_empty() {
                    sleep(Duration::from_millis(10)).await;
                }
                [reply_ten_times().await, 0]
            }
        };
        println!("{first} {second}");
    }
    Ok(())
}

/// Makes four calls at once. Returns the number of those that got a turn, and of those that did not.
async fn wait_in_line() -> [u32; 2] {
    let mut calls: JoinSet<_> = (0..4).map(|_| report()).collect();
    let mut counts = [0, 0];
    while let Some(end) = calls.join_next().await {
        counts[usize::from(!matches!(end, Ok(Ok(()))))] += 1;
    }
    counts
}

/// Makes 2000 calls. Returns the number of admitted ones, and of those that Redis decided.
async fn ingest(limiter: &Limiter) -> [u32; 2] {
    let [mut admitted, mut by_redis] = [0, 0];
    for _ in 0..2_000 {
        if let Ok(decision) = limiter.check(&INGEST, "all").await {
            admitted += 1;
            by_redis += u32::from(decision.decided_by() == DecidedBy::Store);
        }
    }
    [admitted, by_redis]
}

async fn reply_ten_times() -> u32 {
    let mut admitted = 0;
    for _ in 0..10 {
        admitted += u32::from(reply("harry").await.is_ok());
    }
    admitted
}

/// A process of the fleet, as the first one sees it.
struct Process {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    async fn start(url: &str) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.arg("process").env("RATELIMIT_URL", url).kill_on_drop(true);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().ok_or("its output is piped")?;
        let mut output = BufReader::new(output).lines();
        output.next_line().await?;
        Ok(Self { process, output })
    }

    /// Lets both do the same at the same time. Returns the sums of their counts.
    async fn both(one: &mut Self, other: &mut Self, command: &str) -> Result<[u32; 2]> {
        for process in [&mut *one, &mut *other] {
            let input = process.process.stdin.as_mut().ok_or("its input is piped")?;
            input.write_all(format!("{command}\n").as_bytes()).await?;
        }
        let mut sums = [0, 0];
        for process in [one, other] {
            let counts = process.output.next_line().await?.ok_or("the process has ended")?;
            for (sum, count) in sums.iter_mut().zip(counts.split(' ')) {
                *sum += count.parse::<u32>()?;
            }
        }
        Ok(sums)
    }
}

/// Starts a Redis on a socket. Returns its URL too.
async fn start_redis() -> Result<(String, Child)> {
    let socket = env::temp_dir().join(format!("fleet-{}.sock", process::id()));
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket).kill_on_drop(true);
    let mut server = command.stdout(Stdio::piped()).spawn()?;
    let mut log = BufReader::new(server.stdout.take().ok_or("its output is piped")?).lines();
    while let Some(line) = log.next_line().await? {
        if line.contains("eady to accept connections") {
            // Somebody reads what it logs, or it would end at its next line.
            tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
            return Ok((format!("unix://{}", socket.display()), server));
        }
    }
    Err("redis-server does not start".into())
}
