//! Properties of an exchange under every schedule of its caller and the task of its connection.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    task::Wake,
};

use redis::RedisError;

use super::*;
use crate::sync::{Thread, each, with};

/// A waker that remembers that it was called.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn enqueued() -> Arc<Exchange> {
    let exchange = Exchange::new(redis::cmd("PING"), false);
    exchange.enqueue();
    exchange
}

fn lost() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()
}

/// Runs the task beside a caller that polls once. Returns the result that the caller gets, at once
/// or after it was woken.
fn awaited(exchange: &Arc<Exchange>, task: Thread<()>) -> Reply {
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(Arc::clone(&woken));
    let polled = Mutex::new(None);
    with([task], || {
        let poll = exchange.poll_reply(&mut Context::from_waker(&waker));
        if let Poll::Ready(reply) = poll {
            *polled.lock() = Some(reply);
        }
    });
    if let Some(reply) = polled.lock().take() {
        return reply;
    }
    assert!(woken.0.load(Ordering::SeqCst), "a caller that waits is woken");
    match exchange.poll_reply(&mut Context::from_waker(&waker)) {
        Poll::Ready(reply) => reply,
        Poll::Pending => panic!("a caller is woken for a result"),
    }
}

#[test]
fn a_caller_gets_the_reply_to_its_command() {
    each(|| {
        let exchange = enqueued();
        let of_task = Arc::clone(&exchange);
        let task = Box::new(move || {
            assert!(of_task.write(&mut Vec::new()));
            of_task.complete(Ok(Value::Int(7)));
        });
        let Some(reply) = awaited(&exchange, task) else { panic!("it was sent") };
        assert_eq!(reply.unwrap(), Value::Int(7));
    });
}

#[test]
fn a_command_comes_back_if_its_connection_ends_before_it_is_written() {
    each(|| {
        let exchange = enqueued();
        let of_task = Arc::clone(&exchange);
        let task = Box::new(move || of_task.complete(Err(lost())));
        assert!(awaited(&exchange, task).is_none());
        exchange.enqueue();
        assert!(exchange.write(&mut Vec::new()));
    });
}

#[test]
fn an_abandoned_command_is_written_whole_or_not_at_all() {
    each(|| {
        let exchange = enqueued();
        let of_task = Arc::clone(&exchange);
        let task = Box::new(move || {
            let mut output = Vec::new();
            let is_written = of_task.write(&mut output);
            assert_eq!(is_written, output == b"*1\r\n$4\r\nPING\r\n");
            assert_eq!(is_written, !output.is_empty());
            of_task.complete(Ok(Value::Okay));
        });
        with([task as Thread<()>], || exchange.abandon());
        assert!(!exchange.is_sent());
    });
}
