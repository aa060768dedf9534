//! A process with a limiter, which another process asks line by line.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write, stdin},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::Builder;

use crate::peer::{self, Answer, Limit, Peer};

/// The time after which a call is given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(8);

/// Makes the calls that the lines of the input ask for, and prints what became of them.
pub(crate) fn serve(peer: Peer, url: &str, limit: Limit) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let limiter = peer::ready(peer, url, limit).await;
        println!("ready");
        for (number, line) in stdin().lines().enumerate() {
            let line = line.expect("a line");
            let answer = match line.split_once(' ').expect("a word and its argument") {
                ("ask", caller) => Some((limiter.ask)(caller.to_owned()).await),
                ("flood", prefix) => {
                    for number in 0..callers(peer) {
                        (limiter.ask)(format!("{prefix}-{number}")).await;
                    }
                    None
                }
                ("reset", _) => {
                    limiter.reset.as_ref().expect("a limiter with resets")().await;
                    None
                }
                ("forge", number) => {
                    let request = peer::through_proxy(number.parse().expect("a number"));
                    let service = limiter.service.as_ref().expect("a limiter with a layer");
                    Some(peer::status(service, request).await)
                }
                (word, _) => unreachable!("{word}"),
            };
            println!("{} {answer:?}", number + 1);
        }
    });
}

/// The number of callers in a flood.
pub(crate) fn callers(peer: Peer) -> u32 {
    if peer.is_on_redis() { 10_000 } else { 100_000 }
}

/// A process with a limiter.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    sent: usize,
}

/// A call.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// `None` if it did not end in time.
    pub(crate) answer: Option<Answer>,
    pub(crate) asked: Instant,
    pub(crate) answered: Instant,
}

impl Call {
    pub(crate) fn is(&self, answer: Answer) -> bool {
        self.answer == Some(answer)
    }

    pub(crate) fn took(&self) -> Duration {
        self.answered - self.asked
    }
}

impl Process {
    pub(crate) fn start(peer: Peer, url: &str, limit: Limit) -> Self {
        Self::with_environment(peer, url, limit, &[])
    }

    pub(crate) fn with_environment(
        peer: Peer,
        url: &str,
        limit: Limit,
        environment: &[(&str, String)],
    ) -> Self {
        let mut child = Command::new(env::current_exe().expect("this program"))
            .args([peer.name(), url, &limit.threshold.to_string(), &limit.seconds.to_string()])
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("this program starts");
        let input = child.stdin.take().expect("its input");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|it| sender.send(it))
        });
        let process = Self { child, input, lines, sent: 0 };
        assert_eq!(process.lines.recv().as_deref(), Ok("ready"), "{} starts", peer.name());
        process
    }

    fn line(&mut self, line: &str, patience: Duration) -> Option<String> {
        writeln!(self.input, "{line}").ok()?;
        self.sent += 1;
        let start = Instant::now();
        loop {
            let line = self.lines.recv_timeout(patience.saturating_sub(start.elapsed())).ok()?;
            // The answer to an earlier line, which was given up, has another number.
            if let Some(answer) = line.strip_prefix(&format!("{} ", self.sent)) {
                return Some(answer.to_owned());
            }
        }
    }

    /// Makes a call.
    pub(crate) fn ask(&mut self, caller: &str) -> Call {
        self.call(&format!("ask {caller}"))
    }

    /// Sends a request with a forged header.
    pub(crate) fn forge(&mut self, number: u32) -> Call {
        self.call(&format!("forge {number}"))
    }

    fn call(&mut self, line: &str) -> Call {
        let asked = Instant::now();
        let answer = self.line(line, PATIENCE).map(|line| match &*line {
            "Some(Admitted)" => Answer::Admitted,
            "Some(Refused)" => Answer::Refused,
            _ => Answer::Failed,
        });
        Call { answer, asked, answered: Instant::now() }
    }

    /// Makes so many calls of one caller.
    pub(crate) fn asks(&mut self, caller: &str, calls: u32) -> Vec<Call> {
        (0..calls).map(|_| self.ask(caller)).collect()
    }

    /// Makes one call of each of many new callers.
    pub(crate) fn flood(&mut self, prefix: &str) {
        self.line(&format!("flood {prefix}"), 30 * PATIENCE).expect("a flood ends");
    }

    /// Forgets the calls of `alice`.
    pub(crate) fn reset(&mut self) {
        self.line("reset alice", PATIENCE).expect("a reset ends");
    }

    /// A figure of the process's memory, in kilobytes: `VmRSS` is what it has, `VmHWM` the most it
    /// had.
    pub(crate) fn memory(&self, figure: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(figure)?.strip_prefix(':'));
        line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn count(calls: &[Call], answer: Answer) -> usize {
    calls.iter().filter(|call| call.is(answer)).count()
}

/// The longest of these calls, in seconds.
pub(crate) fn longest(calls: &[Call]) -> f64 {
    calls.iter().map(Call::took).max().unwrap_or_default().as_secs_f64()
}
