use std::{sync::Mutex, thread};

use redis::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    runtime::Builder,
    task::JoinHandle,
};

use super::*;
use crate::redis::transport::{echo::Command, exchange::Reply as Outcome};

/// The longest reply of the tests.
const MAX_REPLY: usize = 8 * INPUT;

/// A connection, and the names of the commands that its server has read.
struct Fixture {
    multiplexer: Multiplexer,
    read: Arc<Mutex<Vec<String>>>,
    driver: JoinHandle<()>,
}

impl Fixture {
    fn connect() -> Arc<Self> {
        Self::connect_through(1 << 16)
    }

    /// Connects by a stream that takes this many bytes before the other side reads.
    fn connect_through(bytes: usize) -> Arc<Self> {
        let (client, server) = duplex(bytes);
        let read = Arc::default();
        tokio::spawn(serve(server, Arc::clone(&read)));
        Self::new(client, read)
    }

    fn new(client: DuplexStream, read: Arc<Mutex<Vec<String>>>) -> Arc<Self> {
        let (multiplexer, driver) = Multiplexer::new(client, MAX_REPLY, Secrets::default());
        Arc::new(Self { multiplexer, read, driver: tokio::spawn(driver) })
    }

    fn start(&self, command: &str) -> Arc<Exchange> {
        let exchange = Exchange::new(redis::cmd(command), false);
        self.multiplexer.send(&exchange, false);
        exchange
    }

    async fn send(&self, command: &str) -> Outcome {
        reply_to(&self.start(command)).await
    }

    /// Sends the commands from a task each, which are all ready at once on the runtime's only
    /// worker.
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
    exchange.reply().await
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
            Some(Ok(Value::Int(number))) => Self::Number(number),
            Some(Ok(value)) => panic!("{value:?}"),
            Some(Err(error)) if error.code().is_some() => Self::Error,
            Some(Err(_)) => Self::Written,
            None => Self::Unwritten,
        }
    }
}

/// Replies to each command by its name, a number. `FAIL` is an error, `LONG` a long one, `PUSH`
/// comes behind a message that nobody asked for, `TWICE` has two replies, `STALL` none, and
/// `ENDLESS` is one that is too long. `END`, `HALF` and `HTTP` end the connection: without a reply,
/// in the middle of one, and after bytes of another protocol.
async fn serve(mut client: DuplexStream, read: Arc<Mutex<Vec<String>>>) {
    let (mut input, mut text) = (vec![0; 1 << 16], String::new());
    while let Ok(length @ 1..) = client.read(&mut input).await {
        text += std::str::from_utf8(&input[..length]).unwrap();
        let mut replies = String::new();
        let mut is_over = false;
        // Each command is three lines.
        while let Some((end, _)) = text.match_indices("\r\n").nth(2).filter(|_| !is_over) {
            let command: String = text.drain(..end + 2).collect();
            let name = command.lines().nth(2).unwrap();
            read.lock().unwrap().push(name.to_owned());
            match name {
                "ASKING" => replies += "+OK\r\n",
                "FAIL" => replies += "-WRONGTYPE other\r\n",
                "LONG" => replies.extend(["-WRONGTYPE ", &"x".repeat(3 * INPUT), "\r\n"]),
                "PUSH" => replies += ">2\r\n+invalidate\r\n*0\r\n:0\r\n",
                "TWICE" => replies += ":0\r\n:0\r\n",
                "ENDLESS" => replies.extend(["+", &"x".repeat(9 * INPUT)]),
                "STALL" => {}
                "END" | "HALF" | "HTTP" => {
                    is_over = true;
                    replies += match name {
                        "HALF" => ":1",
                        "HTTP" => "HTTP/1.1 400\r\n",
                        _ => "",
                    };
                }
                number => replies.extend([":", number, "\r\n"]),
            }
        }
        if client.write_all(replies.as_bytes()).await.is_err() || is_over {
            return;
        }
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
    let batches = fixture.multiplexer.batches();
    assert!((4..=10).contains(&batches), "{batches}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_error_is_the_reply_of_its_own_command_only() {
    let fixture = Fixture::connect();
    let replies = fixture.send_all(&["1", "FAIL", "3", "FAIL", "5"]).await;
    let number = Reply::Number;
    assert_eq!(replies, [number(1), Reply::Error, number(3), Reply::Error, number(5)]);
    assert_eq!(fixture.multiplexer.batches(), 1);
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
    let of_task = Arc::clone(&fixture);
    // By the only worker, so that all of them go out in one batch.
    let all = async move { ["1", "2", "END", "4"].map(|name| of_task.start(name)) };
    let all = tokio::spawn(all).await.unwrap();
    let number = Reply::Number;
    let expected = [number(1), number(2), Reply::Written, Reply::Written];
    for (exchange, expected) in all.iter().zip(expected) {
        assert_eq!(Reply::of(reply_to(exchange).await), expected);
    }
    assert_eq!(fixture.multiplexer.batches(), 1);
    // The end is known from here on, and the commands come back.
    assert_eq!(fixture.send_all(&["1"; 3]).await, [Reply::Unwritten; 3]);
    assert_eq!(fixture.multiplexer.batches(), 1);
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
async fn one_thread_writes_while_it_has_replies_to_deliver() {
    let fixture = Fixture::connect();
    let callers = (0..MAX_BATCH).map(|number| {
        let fixture = Arc::clone(&fixture);
        tokio::spawn(async move {
            for number in [number, 1_000 + number] {
                let reply = Reply::of(fixture.send(&number.to_string()).await);
                assert_eq!(reply, Reply::Number(number.try_into().unwrap()));
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    // All callers ask at once, get their replies in two parts, and ask again in two.
    assert_eq!(fixture.multiplexer.batches(), 3);
    // The end of the connection comes after the replies before it.
    let last: Vec<_> =
        (0..MAX_BATCH - 1).map(|number| fixture.start(&number.to_string())).collect();
    let end = fixture.start("END");
    for (number, exchange) in last.iter().enumerate() {
        let reply = Reply::of(reply_to(exchange).await);
        assert_eq!(reply, Reply::Number(number.try_into().unwrap()));
    }
    assert_eq!(Reply::of(reply_to(&end).await), Reply::Written);
}

#[tokio::test]
async fn one_thread_has_one_write_for_all_commands_too() {
    let fixture = Fixture::connect();
    let exchanges: Vec<_> = ["1", "2", "3"].map(|name| fixture.start(name)).into();
    for (exchange, number) in exchanges.iter().zip(1..) {
        assert_eq!(Reply::of(reply_to(exchange).await), Reply::Number(number));
    }
    assert_eq!(fixture.multiplexer.batches(), 1);
}

#[tokio::test]
async fn a_connection_ends_when_its_server_does() {
    let fixture = Fixture::connect();
    assert_eq!(Reply::of(fixture.send("END").await), Reply::Written);
    while !fixture.driver.is_finished() {
        yield_now().await;
    }
}

#[tokio::test]
async fn a_reply_that_breaks_off_or_is_of_another_protocol_ends_the_connection() {
    for name in ["HALF", "HTTP"] {
        let fixture = Fixture::connect();
        let exchanges = ["1", name, "3"].map(|name| fixture.start(name));
        for (exchange, expected) in
            exchanges.iter().zip([Reply::Number(1), Reply::Written, Reply::Written])
        {
            assert_eq!(Reply::of(reply_to(exchange).await), expected, "{name}");
        }
        assert_eq!(Reply::of(fixture.send("4").await), Reply::Unwritten, "{name}");
    }
}

#[tokio::test]
async fn a_reply_longer_than_the_input_shifts_no_other() {
    let fixture = Fixture::connect();
    let exchanges = ["1", "LONG", "3"].map(|name| fixture.start(name));
    let number = Reply::Number;
    for (exchange, expected) in exchanges.iter().zip([number(1), Reply::Error, number(3)]) {
        assert_eq!(Reply::of(reply_to(exchange).await), expected);
    }
}

#[tokio::test]
async fn what_nobody_asked_for_and_a_reply_that_is_too_long_end_the_connection() {
    for (name, expected) in
        [("PUSH", Reply::Written), ("TWICE", Reply::Number(0)), ("ENDLESS", Reply::Written)]
    {
        let fixture = Fixture::connect();
        let exchanges = ["1", name].map(|name| fixture.start(name));
        for (exchange, expected) in exchanges.iter().zip([Reply::Number(1), expected]) {
            assert_eq!(Reply::of(reply_to(exchange).await), expected, "{name}");
        }
        while !fixture.driver.is_finished() {
            yield_now().await;
        }
        assert_eq!(Reply::of(fixture.send("4").await), Reply::Unwritten, "{name}");
    }
}

#[tokio::test]
async fn the_reply_to_another_command_ends_the_connection() {
    let fixture = Fixture::connect();
    let [named, later] = ["1", "2"].map(|name| {
        let exchange = Exchange::new(Command::echoed(redis::cmd(name), 7), false);
        fixture.multiplexer.send(&exchange, false);
        exchange
    });
    for exchange in [named, later] {
        let reply = reply_to(&exchange).await;
        let Some(Err(error)) = reply else { panic!("a reply") };
        assert_eq!(error.detail(), Some("the reply to another command"));
    }
}

#[tokio::test]
async fn the_reply_to_asking_is_nobodys() {
    let fixture = Fixture::connect();
    let first = fixture.start("1");
    let asking = Exchange::new(redis::cmd("2"), true);
    fixture.multiplexer.send(&asking, false);
    let last = fixture.start("3");
    for (exchange, number) in [first, asking, last].iter().zip(1..) {
        assert_eq!(Reply::of(reply_to(exchange).await), Reply::Number(number));
    }
    assert_eq!(fixture.read(), ["1", "ASKING", "2", "3"]);
}

/// Both sides wait for the other to read now and then.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn writes_in_pieces_change_no_reply() {
    let fixture = Fixture::connect_through(7);
    let names: Vec<_> = (0..200).map(|number| number.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let expected: Vec<_> = (0..200).map(Reply::Number).collect();
    assert_eq!(fixture.send_all(&names).await, expected);
}

#[tokio::test]
async fn a_batch_that_is_written_in_part_counts_as_written() {
    let (client, server) = duplex(16);
    let fixture = Fixture::new(client, Arc::default());
    let batch = ["1", "2", "3"].map(|name| fixture.start(name));
    while fixture.multiplexer.batches() < 1 {
        yield_now().await;
    }
    // The first one fills the stream, and this one waits behind the batch.
    let later = fixture.start("4");
    batch[2].abandon();
    drop(server);
    for exchange in &batch[..2] {
        assert_eq!(Reply::of(reply_to(exchange).await), Reply::Written);
    }
    assert_eq!(Reply::of(reply_to(&later).await), Reply::Unwritten);
}
