//! `cargo run -p examples-outbound --example outbound`
//!
//! Three processes call a remote service, and share its limit of four calls a second on Redis: that of `RATELIMIT_URL`,
//! or a `redis-server` that is started here. The service refuses the fourth call, and asks for a pause of three
//! seconds. It takes seven seconds, and prints the end of each call as it ends. `..` differs from run to run:
//!
//! ```text
//! 18 calls, one after the other to processes 1, 2 and 3, the last three with little time
//! ..
//! process 1, call 16: no turn within a second, after ..s
//! ..
//! process 3, call 15: answered, after ..s
//! ..
//! the service was called by 1 2 3 4 (429) .. 15, and again by 4..
//! in the pause: 0 calls of the process that was refused, .. of others within a second, 0 after it
//! process 1: 5 answered, 1 refused by the service and sent again, 1 without a turn
//! process 2: 5 answered, .. refused by the service and sent again, 1 without a turn
//! process 3: 5 answered, .. refused by the service and sent again, 1 without a turn
//! ```

mod remote;

use std::{
    env,
    error::Error,
    iter,
    net::TcpListener,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::http::{Request, Response};
use ratelimit_runtime::{Caller, Limiter, OnStoreError, Policy, client::HeedLayer};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, stdin},
    process::{Child, ChildStdout, Command},
    sync::mpsc,
    task::{JoinSet, yield_now},
    time::Instant,
};
use tower::{Layer, ServiceExt, service_fn};

use remote::Remote;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The limit of the service.
pub(crate) const PACE: Policy = Policy::sliding_window("weather", Duration::from_millis(250), 1);

const PROCESSES: usize = 3;
const CALLS: usize = 18;
/// The calls from this one on wait for at most a second.
const HASTY: usize = 16;
/// The line that a process prints when its call is in line: the next one comes later.
const IN_LINE: &str = "in line";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    match env::args().nth(1) {
        Some(remote) => process(&remote).await,
        None => fleet().await,
    }
}

/// One process: reads the numbers of its calls, makes them, and prints their end.
async fn process(remote: &str) -> Result<()> {
    // Without Redis, no call is made: the processes could not keep the limit each by itself.
    let builder = Limiter::builder().deadline(Duration::from_secs(5));
    let limiter =
        builder.on_store_error(OnStoreError::Deny).connect(&env::var("RATELIMIT_URL")?).await?;
    // Of another key: afterwards Redis has the script, and no call is sent twice.
    limiter.check(&PACE, "first").max_wait(Duration::from_secs(1)).await?;
    println!("connected");

    let refused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refused);
    let http = reqwest::Client::builder().no_proxy().build()?;
    let http = service_fn(move |request: Request<String>| {
        let (http, refused) = (http.clone(), Arc::clone(&counted));
        async move {
            let response = http.execute(request.try_into()?).await?;
            refused.fetch_add(usize::from(response.status() == 429), Ordering::Relaxed);
            Ok::<Response<reqwest::Body>, reqwest::Error>(response.into())
        }
    });
    let layer = HeedLayer::new(limiter.clone(), PACE, |_| Caller::from("all"));
    let patient = layer.clone().max_wait(Duration::from_secs(30)).layer(http.clone());
    let hasty = layer.max_wait(Duration::from_secs(1)).layer(http);

    let (mut calls, mut numbers) = (JoinSet::new(), BufReader::new(stdin()).lines());
    while let Some(number) = numbers.next_line().await? {
        let number: usize = number.parse()?;
        let client = if number < HASTY { &patient } else { &hasty };
        let request = Request::get(format!("{remote}/{number}")).body(String::new())?;
        let (call, start) = (client.clone().oneshot(request), Instant::now());
        calls.spawn(async move {
            let is_answered = call.await.is_ok();
            let end = if is_answered { "answered" } else { "no turn within a second" };
            println!("call {number}: {end}, after {:.1?}", start.elapsed());
            is_answered
        });
        // The call was sent when it was polled, and Redis answers in order.
        yield_now().await;
        let _ = limiter.peek(&PACE, "all").cost(0).await;
        println!("{IN_LINE}");
    }
    let (answered, without): (Vec<_>, Vec<_>) =
        calls.join_all().await.into_iter().partition(|is_answered| *is_answered);
    println!(
        "{} answered, {} refused by the service and sent again, {} without a turn",
        answered.len(),
        refused.load(Ordering::Relaxed),
        without.len(),
    );
    Ok(())
}

/// Starts the service and the processes, gives them calls, and prints what the service has seen.
async fn fleet() -> Result<()> {
    let (redis, _server) = redis().await?;
    let (url, remote) = Remote::start(&[4], Duration::from_secs(3)).await?;
    let (mut processes, (arrived, mut in_line)) = (Vec::new(), mpsc::channel(1));
    for number in 1..=PROCESSES {
        let mut command = Command::new(env::current_exe()?);
        command.arg(&url).env("RATELIMIT_URL", &redis).kill_on_drop(true);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(process.stdout.take().expect("its output is piped")).lines();
        lines.next_line().await?;
        processes.push((process, tokio::spawn(print_ends(number, lines, arrived.clone()))));
    }

    println!(
        "{CALLS} calls, one after the other to processes 1, 2 and 3, the last three with little time"
    );
    for number in 1..=CALLS {
        let process = &mut processes[(number - 1) % PROCESSES].0;
        let input = process.stdin.as_mut().expect("its input is piped");
        input.write_all(format!("{number}\n").as_bytes()).await?;
        in_line.recv().await;
    }
    let mut ends = Vec::new();
    for (mut process, printed) in processes {
        drop(process.stdin.take());
        ends.push(printed.await?);
        process.wait().await?;
    }

    report(&remote);
    for (number, end) in iter::zip(1.., ends) {
        println!("process {number}: {end}");
    }
    Ok(())
}

/// Prints the ends of a process's calls, and returns its last line. Sends a message for each call that is in line.
async fn print_ends(
    process: usize,
    mut lines: Lines<BufReader<ChildStdout>>,
    arrived: mpsc::Sender<()>,
) -> String {
    let mut last = String::new();
    while let Ok(Some(line)) = lines.next_line().await {
        if line == IN_LINE {
            let _ = arrived.send(()).await;
        } else if line.starts_with("call ") {
            println!("process {process}, {line}");
        } else {
            last = line;
        }
    }
    last
}

/// Prints the calls that have reached the service.
fn report(remote: &Remote) {
    let calls = remote.calls();
    let (mut first, mut again) = (Vec::new(), Vec::new());
    for (index, call) in calls.iter().enumerate() {
        let is_new = calls[..index].iter().all(|it| it.name != call.name);
        if is_new { &mut first } else { &mut again }.push(call.to_string());
    }
    println!("the service was called by {}, and again by {}", first.join(" "), again.join(" "));

    let Some(told) = calls.iter().find(|it| it.is_refused) else { return };
    let process = |name: &str| name.parse::<usize>().map(|number| (number - 1) % PROCESSES).ok();
    let in_pause = calls.iter().filter(|it| it.at > told.at && it.at < told.at + remote.pause);
    let (of_told, of_others): (Vec<_>, Vec<_>) =
        in_pause.partition(|it| process(&it.name) == process(&told.name));
    let (soon, later): (Vec<_>, Vec<_>) =
        of_others.into_iter().partition(|it| it.at < told.at + Duration::from_secs(1));
    println!(
        "in the pause: {} calls of the process that was refused, {} of others within a second, {} after it",
        of_told.len(),
        soon.len(),
        later.len(),
    );
}

/// Returns the URL of the Redis that the processes share, and the server that was started for it.
async fn redis() -> Result<(String, Option<Child>)> {
    if let Ok(url) = env::var("RATELIMIT_URL") {
        return Ok((url, None));
    }
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--save", ""]).kill_on_drop(true);
    let mut server = command.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(server.stdout.take().expect("its output is piped")).lines();
    while let Some(line) = lines.next_line().await? {
        if line.contains("Ready to accept connections") {
            return Ok((format!("redis://127.0.0.1:{port}"), Some(server)));
        }
    }
    Err("redis-server does not start".into())
}
