//! The line of four processes: nobody passes later than was promised at arrival, and no window has too many
//! charges, also if many calls leave and a process is killed.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use harness::{FaultLine, Monitor, RedisServer, wait_for};

/// The limit of the processes: calls in a period of so many microseconds.
const PERIOD: u64 = 100_000;
const THRESHOLD: usize = 20;

/// The time without processor time, in microseconds, that excuses another order: ten turns of a bucket.
const STALL: u64 = 50_000;

/// A process whose calls wait.
struct Waiters {
    process: Child,
    output: BufReader<ChildStdout>,
}

/// A call that has passed, in microseconds of the machine's clock.
struct Passed {
    promised: u64,
    passed: u64,
}

/// The calls of a process, in the order of their arrival.
struct Calls {
    passed: Vec<Passed>,
    left: usize,
    /// The number of turns that were given back too late.
    unsent: usize,
    /// How late the process was woken or answered by Redis at the worst.
    late: u64,
}

impl Waiters {
    fn start(server: &RedisServer, algorithm: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_waiters"))
            .args([&server.url(), algorithm, "250", "30"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut String::new()).expect("it is ready");
        Self { process, output }
    }

    fn begin(&mut self) {
        self.process.stdin.take().unwrap().write_all(b"\n").unwrap();
    }

    fn end(mut self) -> Calls {
        let mut calls = Calls { passed: Vec::new(), left: 0, unsent: 0, late: 0 };
        for line in self.output.lines() {
            let line = line.unwrap();
            let number = |word: &str| word.parse::<u64>().unwrap();
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["left"] => calls.left += 1,
                ["unsent", unsent] => calls.unsent = number(unsent).try_into().unwrap(),
                ["late", late] => calls.late = number(late),
                [promised, passed] => {
                    calls
                        .passed
                        .push(Passed { promised: number(promised), passed: number(passed) });
                }
                _ => panic!("{line}"),
            }
        }
        assert!(self.process.wait().unwrap().success());
        calls
    }
}

impl Calls {
    /// Asserts that calls have passed in the order of their arrival, none of them later than promised, but for
    /// the time in which the process was not woken, or a check not answered, and that those which left have given
    /// back their turns. Returns the latest.
    fn validate(&self) -> u64 {
        // The timers of a process that had no processor time are all over when it is woken, in any order.
        let excused = if self.late > STALL { self.late } else { 0 };
        let mut latest_before = 0_u64;
        for call in &self.passed {
            let overtaken = latest_before.saturating_sub(call.passed);
            assert!(
                overtaken <= excused,
                "a call has overtaken one that arrived before it, by {overtaken} us, in a process that was woken \
                 at most {} us late",
                self.late
            );
            latest_before = latest_before.max(call.passed);
        }
        assert!(self.unsent == 0 || self.late > PERIOD, "{} unsent", self.unsent);
        let late = |call: &Passed| call.passed.saturating_sub(call.promised);
        let latest = self.passed.iter().map(late).max().unwrap_or(0);
        let excused = 3 * self.late + 50_000;
        assert!(
            latest <= excused,
            "{latest} us late, and woken or answered at most {} us late",
            self.late
        );
        latest
    }
}

/// Lets a thousand calls of four processes wait, of which 30 % leave and one process is killed. Returns the
/// stamps of all turns. Calls that do not wait have one only in a sliding window.
fn a_thousand_calls(algorithm: &str) -> Vec<u64> {
    let server = RedisServer::start();
    let monitor = Monitor::start(&server);
    let mut processes: Vec<_> = (0..4).map(|_| Waiters::start(&server, algorithm)).collect();
    processes.iter_mut().for_each(Waiters::begin);
    std::thread::sleep(Duration::from_secs(1));
    let mut killed = processes.remove(0);
    killed.process.kill().unwrap();
    killed.process.wait().unwrap();
    let processes: Vec<_> = processes.into_iter().map(Waiters::end).collect();
    let latest = processes.iter().map(Calls::validate).max().unwrap();
    let passed: Vec<_> = processes.iter().flat_map(|calls| &calls.passed).collect();
    let left: usize = processes.iter().map(|calls| calls.left).sum();
    assert_eq!(passed.len() + left, 750);
    assert!(left > 20, "{left}");
    // Those behind the calls that leave move up, which a busy machine hides.
    let earlier = passed.iter().filter(|call| call.passed < call.promised).count();
    let late = processes.iter().map(|calls| calls.late).max().unwrap();
    assert!(earlier > 50 || late > PERIOD, "{earlier}, at most {late} us late");
    wait_for("the end of the line", || server.keys().is_empty().then_some(()));
    FaultLine::of("1 000 calls wait in line, 30 % leave, one of four processes is killed")
        .with("algorithm", algorithm)
        .with("passed", passed.len())
        .with("moved up", earlier)
        .after("latest after its turn", Duration::from_micros(latest))
        .print();
    monitor.stamps(&format!("ratelimit:{algorithm}:line/all"))
}

#[test]
fn nobody_is_later_than_promised_and_no_window_has_more_charges_than_the_threshold() {
    let stamps = a_thousand_calls("sliding_window");
    assert!(stamps.len() > 500, "{}", stamps.len());
    let windows = stamps.windows(THRESHOLD + 1);
    let shortest = windows.map(|window| window[THRESHOLD] - window[0]).min().unwrap();
    assert!(shortest >= PERIOD, "{} charges in {shortest} us", THRESHOLD + 1);
}

#[test]
fn nobody_is_later_than_promised_and_no_turn_comes_before_the_bucket_has_its_token() {
    let stamps = a_thousand_calls("token_bucket");
    assert!(stamps.len() > 500, "{}", stamps.len());
    for (index, first) in stamps.iter().enumerate() {
        for (more, last) in (0..).zip(&stamps[index..]) {
            // A full bucket, and what flows in until then.
            let tokens = THRESHOLD as u64 * (PERIOD + last - first) / PERIOD;
            assert!(more < tokens, "{} turns in {} us", more + 1, last - first);
        }
    }
}

#[test]
fn nobody_is_later_than_promised_and_no_fixed_window_has_more_turns_than_the_threshold() {
    let stamps = a_thousand_calls("fixed_window");
    assert!(stamps.len() > 500, "{}", stamps.len());
    // The window of the first turn starts with it: the one before is full.
    let mut rest = &stamps[..];
    while let Some(first) = rest.first() {
        let turns = rest.partition_point(|it| *it < first + PERIOD);
        assert!(turns <= THRESHOLD, "{turns} turns in the window from {first}");
        rest = &rest[turns..];
    }
}

#[test]
fn nobody_is_later_than_promised_and_no_turn_exceeds_what_a_counter_estimates() {
    let stamps = a_thousand_calls("sliding_counter");
    assert!(stamps.len() > 500, "{}", stamps.len());
    for (index, stamp) in stamps.iter().enumerate() {
        let start = stamp - stamp % PERIOD;
        let turns_from = |at: u64| index + 1 - stamps.partition_point(|it| *it < at);
        let (current, both) = (turns_from(start), turns_from(start - PERIOD));
        // The weight of the window before is the part of it that is less than a period ago.
        let share = (both - current) as u64 * (start + PERIOD - stamp);
        let estimate = share + current as u64 * PERIOD;
        assert!(estimate <= THRESHOLD as u64 * PERIOD, "{current} and {both} turns at {stamp}");
    }
}
