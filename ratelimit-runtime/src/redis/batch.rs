//! The commands of one moment, which go out over one connection in one write.
//!
//! With several worker threads, the first command of a moment would be written before the others are
//! there, and each reply would wake another worker. A task therefore collects the commands of a
//! moment, and delivers their replies together. With one thread this saves nothing: the thread runs
//! all tasks that are ready before it writes.

#[cfg(test)]
mod tests;

use std::{
    future::poll_fn,
    io, mem,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

use redis::{Cmd, Pipeline, RedisError, Value, aio::MultiplexedConnection};
use tokio::{
    runtime::{Handle as Runtime, RuntimeFlavor},
    sync::{mpsc, oneshot},
    task::yield_now,
};

use super::stream::Traffic;

/// The most commands of a batch. Redis reads about as many at once, and replies to them at once.
const MAX_BATCH: usize = 64;

/// The most commands that wait for the task. Further callers wait for a place.
const MAX_WAITING: usize = 1024;

/// The way to the task that collects the commands of one connection.
pub(super) struct Batcher(mpsc::Sender<Waiting>);

/// A command that waits for the task.
struct Waiting {
    command: Cmd,
    is_sent: Arc<AtomicBool>,
    reply: ReplySender,
}

/// The way to a caller, closed if the caller has gone.
type ReplySender = oneshot::Sender<Result<Value, Unanswered>>;

/// The failure of a command that got no reply.
pub(super) struct Unanswered {
    pub(super) error: RedisError,
    /// The command, if it was not written: it may go over another connection.
    pub(super) unwritten: Option<Cmd>,
}

impl Batcher {
    /// Starts the task of a connection on a runtime of several threads.
    pub(super) fn start(connection: &MultiplexedConnection, traffic: &Traffic) -> Option<Self> {
        let runtime = Runtime::current();
        (runtime.runtime_flavor() == RuntimeFlavor::MultiThread).then(|| {
            let (sender, waiting) = mpsc::channel(MAX_WAITING);
            runtime.spawn(collect(waiting, connection.clone(), traffic.clone()));
            Self(sender)
        })
    }

    /// Sends a command with the others of this moment, and waits for its reply. Sets `is_sent` when
    /// it is sent. If the future is dropped before, it is not sent.
    pub(super) async fn send(
        &self,
        command: Cmd,
        is_sent: &Arc<AtomicBool>,
    ) -> Result<Value, Unanswered> {
        let (reply, replied) = oneshot::channel();
        let waiting = Waiting { command, is_sent: Arc::clone(is_sent), reply };
        let unwritten = match self.0.send(waiting).await {
            Ok(()) => match replied.await {
                Ok(reply) => return reply,
                // The task's runtime has ended, maybe after the command was written.
                Err(_) => None,
            },
            Err(unsent) => Some(unsent.0.command),
        };
        let error = io::Error::from(io::ErrorKind::BrokenPipe).into();
        Err(Unanswered { error, unwritten })
    }
}

/// Sends the commands of each moment, until nobody can send any more.
async fn collect(
    mut waiting: mpsc::Receiver<Waiting>,
    connection: MultiplexedConnection,
    traffic: Traffic,
) {
    let mut under_way: Vec<Pin<Box<dyn Future<Output = ()> + Send>>> = Vec::new();
    let mut batch = Vec::with_capacity(MAX_BATCH);
    loop {
        let next = poll_fn(|context| {
            under_way.retain_mut(|sent| sent.as_mut().poll(context).is_pending());
            waiting.poll_recv_many(context, &mut batch, MAX_BATCH)
        });
        if next.await == 0 {
            return;
        }
        // The other callers of this moment are ready to run.
        yield_now().await;
        while batch.len() < MAX_BATCH
            && let Ok(next) = waiting.try_recv()
        {
            batch.push(next);
        }
        batch.retain(|waiting| !waiting.reply.is_closed());
        if !batch.is_empty() {
            let next = mem::replace(&mut batch, Vec::with_capacity(MAX_BATCH));
            under_way.push(Box::pin(send(next, connection.clone(), traffic.clone())));
        }
    }
}

/// Sends a batch, and delivers its replies.
async fn send(batch: Vec<Waiting>, mut connection: MultiplexedConnection, traffic: Traffic) {
    let mut commands = Pipeline::with_capacity(batch.len());
    let mut replies = Vec::with_capacity(batch.len());
    for Waiting { command, is_sent, reply } in batch {
        is_sent.store(true, Ordering::Relaxed);
        commands.add_command(command);
        replies.push(reply);
    }
    let writes = traffic.writes();
    match connection.send_packed_commands(&commands, 0, replies.len()).await {
        Ok(values) => Delivery::schedule(replies.into_iter().zip(values).collect()),
        Err(error) => {
            let was_written = traffic.writes() > writes;
            for (reply, command) in replies.into_iter().zip(commands.cmd_iter()) {
                let unwritten = (!was_written).then(|| command.clone());
                let _ = reply.send(Err(Unanswered { error: error.clone(), unwritten }));
            }
        }
    }
}

/// Replies on their way to the callers.
///
/// A task that wakes many tasks may wake a parked worker for each of them. The runtime itself, when
/// it wakes the tasks that have yielded, does so once. So the replies are delivered there: they are
/// the waker of something that has yielded.
struct Delivery(Mutex<Vec<(ReplySender, Value)>>);

impl Delivery {
    fn schedule(replies: Vec<(ReplySender, Value)>) {
        let waker = Waker::from(Arc::new(Self(Mutex::new(replies))));
        let _ = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
    }
}

impl Wake for Delivery {
    fn wake(self: Arc<Self>) {
        let replies = mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for (reply, value) in replies {
            // A caller that has gone meanwhile needs no reply.
            let _ = reply.send(Ok(value));
        }
    }
}
