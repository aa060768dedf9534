//! Processes whose calls a plan pays for, and then credits, spend both to the last unit.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use harness::{RedisServer, patient};
use ratelimit_runtime::Policy;

/// The limits of the program `payer`.
const PLAN: Policy = Policy::sliding_window("paid-plan", Duration::from_secs(3_600), 300);
const CREDITS: Policy =
    Policy::fixed_window("paid-credits", Duration::from_secs(366 * 86_400), 200);

struct Payer {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Payer {
    fn start(server: &RedisServer) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_payer"))
            .arg(server.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut payer = Self { process, output };
        assert_eq!(payer.line(), "ready");
        payer
    }

    fn send(&mut self, line: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn line(&mut self) -> String {
        self.output.next().expect("another line").unwrap()
    }

    /// Returns how many of its calls the plan and the credits have paid, or have been settled.
    fn counts(&mut self) -> [u32; 2] {
        let line = self.line();
        let (plan, credits) = line.split_once(' ').expect("two numbers");
        [plan, credits].map(|it| it.parse().unwrap())
    }

    fn ask(&mut self, line: &str) -> [u32; 2] {
        self.send(line);
        self.counts()
    }
}

impl Drop for Payer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Lets two processes make so many calls each at once. Returns how many both limits have paid.
fn pay(fleet: &mut [Payer; 2], calls: u32) -> [u32; 2] {
    for payer in fleet.iter_mut() {
        payer.send(&format!("pay {calls}"));
    }
    let [one, other] = fleet.each_mut().map(Payer::counts);
    [one[0] + other[0], one[1] + other[1]]
}

#[tokio::test]
async fn both_budgets_are_spent_to_the_last_unit_and_settles_go_to_the_one_that_paid() {
    let server = RedisServer::start();
    let reader = patient(&server.url()).await;
    let left = async || {
        let mut left = [0; 2];
        for (left, policy) in left.iter_mut().zip([&PLAN, &CREDITS]) {
            *left = reader.peek(policy, "alice").cost(0).await.unwrap().remaining();
        }
        left
    };
    let mut fleet = [Payer::start(&server), Payer::start(&server)];
    assert_eq!(pay(&mut fleet, 180), [300, 60]);
    assert_eq!(left().await, [0, 140]);
    // What each gives back is that of the limit that has paid.
    let [plan, credits] = fleet[0].ask("settle 20 0");
    assert_eq!((plan, left().await), (20, [plan, 140 + credits]));

    // A third process is killed while it pays.
    let mut third = Payer::start(&server);
    third.send("pay");
    for _ in 0..50 {
        assert_eq!(third.line(), "paid");
    }
    third.process.kill().unwrap();
    let mut paid = 50 + u32::try_from(third.output.by_ref().count()).unwrap();
    third.process.wait().unwrap();
    let before = [plan, 140 + credits];
    let rest = left().await;
    let spent = before[0] + before[1] - rest[0] - rest[1];
    // One call may have been paid when the process was killed.
    paid += u32::from(spent > paid);
    assert_eq!((spent, rest[0]), (paid, 0), "{before:?} {rest:?}");

    assert_eq!(pay(&mut fleet, 200), rest);
    assert_eq!(left().await, [0, 0]);
    assert_eq!(pay(&mut fleet, 50), [0, 0]);
    // A debt is that of the limit that has paid, too.
    let [more_of_plan, more_of_credits] = fleet[0].ask("settle 5 2");
    let [plan, credits] = fleet[1].ask("settle 30 0");
    let rest = [plan.saturating_sub(more_of_plan), credits.saturating_sub(more_of_credits)];
    assert_eq!(left().await, rest);
    assert_eq!(pay(&mut fleet, 60), rest);
}
