//! A connection that calls share: commands go out in batches, replies come back in order.
//!
//! One task carries the bytes. With several worker threads, the first command of a moment would be
//! written before the others are there. So the task lets the ready callers run before it writes.
//! With one thread this saves nothing: the thread runs all tasks that are ready before it writes.
//! There the replies to a full batch are delivered in two parts: Redis decides the next calls of
//! one while the thread runs the callers of the other.

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    io, mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use redis::{RedisError, RedisResult};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    runtime::{Handle as Runtime, RuntimeFlavor},
    task::yield_now,
};

use super::{
    echo::is_named,
    exchange::Exchange,
    failure::{broken, unexpected},
    resp::ReplyReader,
    secrets::Secrets,
};
use crate::sync::Mutex;

/// The most commands of a batch. Redis reads about as many at once, and replies to them at once.
const MAX_BATCH: usize = 64;

/// The replies that are delivered at once on a runtime with one thread.
const MAX_REPLIES: usize = MAX_BATCH / 2;

/// The bytes that are read at once; more if a reply is longer.
const INPUT: usize = 8 << 10;

/// The capacity that the bytes of a batch keep. The texts of scripts are longer.
const OUTPUT: usize = 64 << 10;

/// The reads after which other tasks run, however fast the server sends.
const MAX_READS: usize = 16;

/// The callers' end of a connection.
pub(super) struct Multiplexer(Arc<Mutex<Queue>>);

/// The commands that wait to be written.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Arc<Exchange>>,
    /// `true` if one of them is written without waiting for others.
    is_urgent: bool,
    #[cfg(test)]
    batches: u64,
    /// The task, while it waits for commands.
    task: Option<Waker>,
    has_ended: bool,
}

impl Multiplexer {
    /// Returns the multiplexer of a stream, and the future that carries its bytes until the
    /// connection ends. A reply of more than this many bytes ends it.
    pub(super) fn new<S>(
        stream: S,
        max_reply: usize,
        secrets: Secrets,
    ) -> (Self, MultiplexerTask<S>) {
        let queue = Arc::<Mutex<Queue>>::default();
        let is_shared = Runtime::current().runtime_flavor() == RuntimeFlavor::MultiThread;
        let driver = MultiplexerTask {
            stream,
            queue: Arc::clone(&queue),
            is_shared,
            has_yielded: false,
            batch: Vec::new(),
            output: Vec::new(),
            written: 0,
            in_flight: VecDeque::new(),
            input: vec![0; INPUT],
            filled: 0,
            reader: ReplyReader::new(max_reply),
            secrets,
        };
        (Self(queue), driver)
    }

    /// Returns the number of batches so far.
    #[cfg(test)]
    pub(super) fn batches(&self) -> u64 {
        self.0.lock().batches
    }

    /// Enqueues the command of an exchange. With `is_alone`, no other caller uses the connection.
    pub(super) fn send(&self, exchange: &Arc<Exchange>, is_alone: bool) {
        // Before the task sees it, which writes no command that is not queued.
        exchange.enqueue();
        let mut queue = self.0.lock();
        if queue.has_ended {
            drop(queue);
            exchange.complete(Err(broken()));
            return;
        }
        queue.waiting.push_back(Arc::clone(exchange));
        queue.is_urgent |= is_alone;
        let task = queue.task.take();
        drop(queue);
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// The task of a connection.
pub(super) struct MultiplexerTask<S> {
    stream: S,
    queue: Arc<Mutex<Queue>>,
    /// `true` if the runtime has several threads.
    is_shared: bool,
    /// `true` if the ready callers have run since there are commands.
    has_yielded: bool,
    /// The commands of a batch, while it is made.
    batch: Vec<Arc<Exchange>>,
    /// The bytes of a batch.
    output: Vec<u8>,
    /// The number of them that are written.
    written: usize,
    in_flight: VecDeque<InFlight>,
    input: Vec<u8>,
    /// The bytes of `input` that have arrived and are not read.
    filled: usize,
    reader: ReplyReader,
    secrets: Secrets,
}

/// A command that was written.
struct InFlight {
    exchange: Arc<Exchange>,
    /// `true` if the reply to `ASKING` comes first.
    is_asking: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for MultiplexerTask<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let error = loop {
            if let Poll::Ready(error) = this.poll_replies(context) {
                break error;
            }
            match this.poll_output(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => break error.into(),
                Poll::Ready(Ok(())) => {}
            }
            if !this.take_batch(context) {
                return Poll::Pending;
            }
        };
        this.end(&error);
        Poll::Ready(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> MultiplexerTask<S> {
    /// Reads and delivers the replies that have arrived, and returns the error that ends the
    /// connection.
    fn poll_replies(&mut self, context: &mut Context<'_>) -> Poll<RedisError> {
        for _ in 0..MAX_READS {
            let read = self.poll_input(context);
            match (read, self.deliver_replies()) {
                (_, Err(error)) => return Poll::Ready(error),
                // Also those that came before the end of the connection.
                (_, Ok(false)) => break,
                (Poll::Ready(Err(error)), Ok(true)) => return Poll::Ready(error.into()),
                (Poll::Ready(Ok(())), Ok(true)) => {}
                (Poll::Pending, Ok(true)) => return Poll::Pending,
            }
        }
        // There may be more: the runtime serves others in between.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads bytes behind those that are there.
    fn poll_input(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.filled == self.input.len() {
            // The reader ends a connection whose reply is too long, and so bounds this.
            self.input.resize(2 * self.filled, 0);
        }
        let mut buffer = ReadBuf::new(&mut self.input[self.filled..]);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
        let read = buffer.filled().len();
        self.filled += read;
        Poll::Ready(if read == 0 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) })
    }

    /// Delivers the replies that are in the input. Returns `false` if there may be more than are
    /// delivered at once.
    fn deliver_replies(&mut self) -> RedisResult<bool> {
        let most = if self.is_shared { usize::MAX } else { MAX_REPLIES };
        let (mut read, mut delivered) = (0, 0);
        while delivered < most
            && let Some(frame) = self.reader.next(&self.input[read..self.filled])?
        {
            (read, delivered) = (read + frame.length, delivered + 1);
            let next = self.in_flight.front_mut().filter(|_| !frame.is_push);
            let next = next.ok_or_else(|| unexpected("a reply that nobody asked for"))?;
            // The reply to ASKING comes before that to its command.
            if mem::take(&mut next.is_asking) {
                continue;
            }
            let mut reply = frame.reply.map_err(|error| self.secrets.cleaned(error));
            if let Ok(reply) = &mut reply
                && !is_named(reply, next.exchange.echo)
            {
                return Err(unexpected("the reply to another command"));
            }
            next.exchange.complete(reply);
            self.in_flight.pop_front();
        }
        if read > 0 {
            self.input.copy_within(read..self.filled, 0);
            self.filled -= read;
            if self.filled <= INPUT && self.input.len() > INPUT {
                self.input.truncate(INPUT);
                self.input.shrink_to_fit();
            }
        }
        Ok(delivered < most)
    }

    /// Writes the batch, all of it.
    fn poll_output(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.output.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while self.written < self.output.len() {
            let rest = &self.output[self.written..];
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
        }
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.output.clear();
        self.output.shrink_to(OUTPUT);
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Takes the next batch from the queue, and returns `true` if there is one now.
    fn take_batch(&mut self, context: &mut Context<'_>) -> bool {
        loop {
            let mut queue = self.queue.lock();
            if queue.waiting.is_empty() {
                queue.task = Some(context.waker().clone());
                return false;
            }
            let count = queue.waiting.len().min(MAX_BATCH);
            if self.is_shared && !self.has_yielded && !queue.is_urgent && count < MAX_BATCH {
                drop(queue);
                self.has_yielded = true;
                // The other callers of this moment are ready to run.
                wake_after_ready_tasks(context.waker());
                return false;
            }
            queue.is_urgent = false;
            #[cfg(test)]
            {
                queue.batches += 1;
            }
            self.batch.extend(queue.waiting.drain(..count));
            drop(queue);
            self.has_yielded = false;
            for exchange in self.batch.drain(..) {
                let is_asking = exchange.asking;
                if exchange.write(&mut self.output) {
                    self.in_flight.push_back(InFlight { exchange, is_asking });
                }
            }
            // Otherwise nobody awaits a command of this batch, and the next one is taken.
            if !self.output.is_empty() {
                return true;
            }
        }
    }
}

impl<S> MultiplexerTask<S> {
    /// Ends all exchanges.
    fn end(&mut self, error: &RedisError) {
        let waiting = {
            let mut queue = self.queue.lock();
            queue.has_ended = true;
            mem::take(&mut queue.waiting)
        };
        let in_flight = self.in_flight.drain(..).map(|it| it.exchange);
        for exchange in self.batch.drain(..).chain(in_flight).chain(waiting) {
            exchange.complete(Err(error.clone()));
        }
    }
}

/// The runtime may end before the connection does.
impl<S> Drop for MultiplexerTask<S> {
    fn drop(&mut self) {
        self.end(&broken());
    }
}

/// Wakes once the tasks that are ready have run.
fn wake_after_ready_tasks(waker: &Waker) {
    let _ = pin!(yield_now()).poll(&mut Context::from_waker(waker));
}
