use std::{future::poll_fn, sync::Mutex, thread};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    runtime::Builder,
    task::JoinHandle,
};

use super::*;
use crate::redis::{
    exchange::Reply as Outcome,
    stream::{MeteredStream, Traffic},
};

/// A connection, and the names of the commands that its server has read.
struct Fixture {
    multiplexer: Multiplexer,
    traffic: Traffic,
    read: Arc<Mutex<Vec<String>>>,
    driver: JoinHandle<()>,
}

impl Fixture {
    fn connect() -> Arc<Self> {
        let (client, server) = duplex(1 << 16);
        let read = Arc::default();
        tokio::spawn(serve(server, Arc::clone(&read)));
        let traffic = Traffic::default();
        let stream = MeteredStream::new(client, traffic.clone(), usize::MAX);
        let (multiplexer, driver) = Multiplexer::new(stream);
        Arc::new(Self { multiplexer, traffic, read, driver: tokio::spawn(driver) })
    }

    fn start(&self, command: &str) -> Arc<Exchange> {
        let exchange = Exchange::new(redis::cmd(command), false);
        self.multiplexer.send(&exchange, false);
        exchange
    }

    async fn send(&self, command: &str) -> Outcome {
        reply_to(&self.start(command)).await
    }

    /// Sends the commands from a task each, which are all ready at once on the runtime's only worker.
    async fn send_all(self: &Arc<Self>, commands: &[&str]) -> Vec<Reply> {
        let fixture = Arc::clone(self);
        let commands: Vec<_> = commands.iter().copied().map(str::to_owned).collect();
        let all = tokio::spawn(async move {
            let tasks: Vec<_> = commands
                .into_iter()
                .map(|command| {
                    let fixture = Arc::clone(&fixture);
                    tokio::spawn(async move { Reply::of(fixture.send(&command).await) })
                })
                .collect();
            let mut replies = Vec::new();
            for task in tasks {
                replies.push(task.await.unwrap());
            }
            replies
        });
        all.await.unwrap()
    }

    fn read(&self) -> Vec<String> {
        self.read.lock().unwrap().clone()
    }
}

async fn reply_to(exchange: &Exchange) -> Outcome {
    poll_fn(|context| exchange.poll_reply(context)).await
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Number(i64),
    Error,
    Written,
    Unwritten,
}

impl Reply {
    fn of(reply: Outcome) -> Self {
        match reply {
            Outcome::Received(Ok(Value::Int(number))) => Self::Number(number),
            Outcome::Received(Ok(value)) => panic!("{value:?}"),
            Outcome::Received(Err(error)) if error.code().is_some() => Self::Error,
            Outcome::Received(Err(_)) => Self::Written,
            Outcome::Unsent => Self::Unwritten,
        }
    }
}

/// Replies to each command by its name, a number. `FAIL` is an error, `STALL` has no reply, and `END`
/// ends the connection.
async fn serve(mut client: DuplexStream, read: Arc<Mutex<Vec<String>>>) {
    let mut input = vec![0; 1 << 16];
    while let Ok(length @ 1..) = client.read(&mut input).await {
        let text = String::from_utf8(input[..length].to_vec()).unwrap();
        let mut replies = String::new();
        for command in text.split('*').skip(1) {
            let name = command.split("\r\n").nth(2).unwrap();
            read.lock().unwrap().push(name.to_owned());
            match name {
                "FAIL" => replies += "-WRONGTYPE other\r\n",
                "STALL" => {}
                "END" => {
                    let _ = client.write_all(replies.as_bytes()).await;
                    return;
                }
                number => replies.extend([":", number, "\r\n"]),
            }
        }
        client.write_all(replies.as_bytes()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn commands_of_one_moment_go_out_in_few_writes_and_each_gets_its_own_reply() {
    let fixture = Fixture::connect();
    let names: Vec<_> = (0..200).map(|number| number.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let expected: Vec<_> = (0..200).map(Reply::Number).collect();
    assert_eq!(fixture.send_all(&names).await, expected);
    // Four are the least. The runtime sees to its sockets now and then before all tasks have run.
    assert!((4..=10).contains(&fixture.traffic.writes()), "{}", fixture.traffic.writes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_error_is_the_reply_of_its_own_command_only() {
    let fixture = Fixture::connect();
    let replies = fixture.send_all(&["1", "FAIL", "3", "FAIL", "5"]).await;
    let number = Reply::Number;
    assert_eq!(replies, [number(1), Reply::Error, number(3), Reply::Error, number(5)]);
    assert_eq!(fixture.traffic.writes(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_whose_caller_has_gone_before_it_was_sent_is_not_sent() {
    let fixture = Fixture::connect();
    let of_task = Arc::clone(&fixture);
    // The only worker runs this task, so that no other task runs up to its first pause.
    let task = tokio::spawn(async move {
        let gone = of_task.start("GONE");
        gone.abandon();
        assert_eq!(Reply::of(of_task.send("1").await), Reply::Number(1));
        assert!(!gone.is_sent());
    });
    task.await.unwrap();
    assert_eq!(fixture.read(), ["1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_caller_that_goes_after_its_command_was_sent_leaves_the_next_reply_to_its_own_caller() {
    let fixture = Fixture::connect();
    let gone = fixture.start("7");
    while !gone.is_sent() {
        yield_now().await;
    }
    gone.abandon();
    assert_eq!(Reply::of(fixture.send("1").await), Reply::Number(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lost_connection_fails_each_command_as_written_or_not() {
    let fixture = Fixture::connect();
    let number = Reply::Number;
    for (exchange, expected) in ["1", "2", "END", "4"].map(|name| fixture.start(name)).iter().zip([
        number(1),
        number(2),
        Reply::Written,
        Reply::Written,
    ]) {
        assert_eq!(Reply::of(reply_to(exchange).await), expected);
    }
    assert_eq!(fixture.traffic.writes(), 1);
    // The end is known from here on, and the commands come back.
    assert_eq!(fixture.send_all(&["1"; 3]).await, [Reply::Unwritten; 3]);
    assert_eq!(fixture.traffic.writes(), 1);
    let other = Fixture::connect();
    let exchange = fixture.start("5");
    assert_eq!(Reply::of(reply_to(&exchange).await), Reply::Unwritten);
    other.multiplexer.send(&exchange, false);
    assert_eq!(Reply::of(reply_to(&exchange).await), Reply::Number(5));
}

#[test]
fn the_end_of_the_tasks_runtime_fails_commands_of_other_runtimes() {
    let first = Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let fixture = first.block_on(async { Fixture::connect() });
    let other = || Builder::new_current_thread().build().unwrap();
    let exchange = fixture.start("STALL");
    let (of_thread, runtime) = (Arc::clone(&exchange), other());
    let call = thread::spawn(move || Reply::of(runtime.block_on(reply_to(&of_thread))));
    while !exchange.is_sent() {
        thread::yield_now();
    }
    drop(first);
    assert_eq!(call.join().unwrap(), Reply::Written);
    assert_eq!(Reply::of(other().block_on(fixture.send("1"))), Reply::Unwritten);
}

#[tokio::test]
async fn one_thread_has_one_write_for_all_commands_too() {
    let fixture = Fixture::connect();
    let exchanges: Vec<_> = ["1", "2", "3"].map(|name| fixture.start(name)).into();
    for (exchange, number) in exchanges.iter().zip(1..) {
        assert_eq!(Reply::of(reply_to(exchange).await), Reply::Number(number));
    }
    assert_eq!(fixture.traffic.writes(), 1);
}

#[tokio::test]
async fn a_connection_ends_when_its_server_does() {
    let fixture = Fixture::connect();
    assert_eq!(Reply::of(fixture.send("END").await), Reply::Written);
    while !fixture.driver.is_finished() {
        yield_now().await;
    }
}
