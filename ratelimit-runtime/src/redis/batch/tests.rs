use std::{sync::mpsc::channel, thread};

use redis::{AsyncConnectionConfig, RedisConnectionInfo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    runtime::Builder,
};

use super::*;
use crate::redis::stream::MeteredStream;

/// A connection whose commands are batched, and the names of those that its server has read.
struct Fixture {
    batcher: Batcher,
    traffic: Traffic,
    read: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    async fn connect() -> Arc<Self> {
        let (client, server) = duplex(1 << 16);
        let read = Arc::default();
        tokio::spawn(serve(server, Arc::clone(&read)));
        let traffic = Traffic::default();
        let stream = MeteredStream::new(client, traffic.clone(), usize::MAX);
        let info = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let opened = MultiplexedConnection::new_with_config(&info, stream, config).await;
        let (connection, driver) = opened.unwrap();
        tokio::spawn(driver);
        let batcher = Batcher::start(&connection, &traffic).expect("a runtime of several threads");
        Arc::new(Self { batcher, traffic, read })
    }

    async fn send(&self, command: &str) -> Result<Value, Unanswered> {
        self.batcher.send(redis::cmd(command), &Arc::default()).await
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Number(i64),
    Error,
    Written,
    Unwritten,
}

impl Reply {
    fn of(reply: Result<Value, Unanswered>) -> Self {
        match reply {
            Ok(Value::Int(number)) => Self::Number(number),
            Ok(value) => value.extract_error().map_or(Self::Error, |it| panic!("{it:?}")),
            Err(Unanswered { unwritten: Some(_), .. }) => Self::Unwritten,
            Err(Unanswered { unwritten: None, .. }) => Self::Written,
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
    let fixture = Fixture::connect().await;
    let names: Vec<_> = (0..200).map(|number| number.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let expected: Vec<_> = (0..200).map(Reply::Number).collect();
    assert_eq!(fixture.send_all(&names).await, expected);
    // Four are the least. The runtime sees to its sockets now and then before all tasks have run.
    assert!((4..=10).contains(&fixture.traffic.writes()), "{}", fixture.traffic.writes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_error_is_the_reply_of_its_own_command_only() {
    let fixture = Fixture::connect().await;
    let replies = fixture.send_all(&["1", "FAIL", "3", "FAIL", "5"]).await;
    let number = Reply::Number;
    assert_eq!(replies, [number(1), Reply::Error, number(3), Reply::Error, number(5)]);
    assert_eq!(fixture.traffic.writes(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_whose_caller_has_gone_before_it_was_sent_is_not_sent() {
    let fixture = Fixture::connect().await;
    let of_task = Arc::clone(&fixture);
    // The only worker runs this task, so that no other task runs up to its first pause.
    let task = tokio::spawn(async move {
        let (gone, is_sent) = (redis::cmd("GONE"), Arc::default());
        let mut call = Box::pin(of_task.batcher.send(gone, &is_sent));
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(call);
        of_task.send("1").await.ok().expect("a reply");
        assert!(!is_sent.load(Ordering::Relaxed));
    });
    task.await.unwrap();
    assert_eq!(fixture.read(), ["1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lost_connection_fails_each_command_as_written_or_not() {
    let fixture = Fixture::connect().await;
    let replies = fixture.send_all(&["1", "2", "END", "4"]).await;
    assert_eq!(replies, [Reply::Written; 4]);
    assert_eq!(fixture.traffic.writes(), 1);
    // The end is known from here on, and the commands come back.
    let writes = fixture.traffic.writes();
    assert_eq!(fixture.send_all(&["1"; 3]).await, [Reply::Unwritten; 3]);
    let returned = fixture.send("1").await.err().and_then(|it| it.unwritten).unwrap();
    assert_eq!(returned.get_packed_command(), redis::cmd("1").get_packed_command());
    assert_eq!(fixture.traffic.writes(), writes);
}

#[test]
fn the_end_of_the_tasks_runtime_fails_commands_of_other_runtimes() {
    let first = Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let fixture = first.block_on(Fixture::connect());
    let other = || Builder::new_current_thread().build().unwrap();
    let (under_way, of_thread) = (Arc::clone(&fixture), other());
    let (sender, receiver) = channel();
    let call = thread::spawn(move || {
        let is_sent = Arc::<AtomicBool>::default();
        let call = under_way.batcher.send(redis::cmd("STALL"), &is_sent);
        sender.send(Arc::clone(&is_sent)).unwrap();
        Reply::of(of_thread.block_on(call))
    });
    let is_sent = receiver.recv().unwrap();
    while !is_sent.load(Ordering::Relaxed) {
        thread::yield_now();
    }
    drop(first);
    assert_eq!(call.join().unwrap(), Reply::Written);
    assert_eq!(Reply::of(other().block_on(fixture.send("1"))), Reply::Unwritten);
}

#[tokio::test]
async fn one_thread_has_no_task() {
    let (client, _server) = duplex(1);
    let info = RedisConnectionInfo::default().set_skip_set_lib_name();
    let (connection, _driver) = MultiplexedConnection::new(&info, client).await.unwrap();
    assert!(Batcher::start(&connection, &Traffic::default()).is_none());
}
