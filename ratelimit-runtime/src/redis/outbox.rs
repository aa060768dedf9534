//! The outbox: commands whose result no call awaits.
//!
//! A command is sent as it is posted, before later commands of its thread. While Redis cannot be
//! reached, commands wait, and one background task sends them again.

mod parcel;

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{
    sync::Notify,
    task::yield_now,
    time::{Instant, sleep, timeout},
};

use self::parcel::Parcel;
use super::{
    backoff::Backoff,
    options::{Content, OnDelivery},
    script::release,
    servers::Unanswered,
    store::RedisStore,
};
use crate::{
    background::{self, Worker},
    error::UnavailableReason,
    key::Key,
    sync::{Mutex, MutexGuard},
    telemetry,
};

/// The most commands that wait. A further one is lost.
const MAX_WAITING: usize = 10_000;

/// The most commands that are sent before the first of them is answered.
const MAX_BATCH: usize = 64;

/// The pauses between attempts while Redis cannot be reached.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// The pause between two log lines about lost commands.
const PAUSE: Duration = Duration::from_secs(60);

pub(crate) struct Outbox {
    store: Arc<RedisStore>,
    queue: Mutex<PostedQueue>,
    /// Notified when a command that was under way has arrived, or waits again, and when a late
    /// reply has come.
    ended: Notify,
    /// Called for every command that has arrived.
    pub(super) on_delivery: OnceLock<OnDelivery>,
}

#[derive(Default)]
struct PostedQueue {
    waiting: VecDeque<Parcel>,
    /// The number of commands that are being sent.
    under_way: usize,
    /// The number of late replies that are awaited: a command may follow each of them.
    expected: usize,
    /// Sends what waits.
    task: Worker,
    /// The number of lost commands.
    lost: usize,
    /// The time of the last log line about them, and their number then.
    logged: Option<(Instant, usize)>,
}

/// A command under way. Dropped before it has arrived, it waits again.
struct SentParcel {
    outbox: Arc<Outbox>,
    /// None once it has arrived.
    parcel: Option<Parcel>,
}

/// A late reply that is awaited, and that a command may follow.
pub(super) struct ExpectedReply {
    pub(super) outbox: Arc<Outbox>,
}

impl SentParcel {
    /// Sends the command. Returns `true` if Redis has answered for good: the command has arrived,
    /// or its key has a value of another type, which stays.
    async fn send(mut self) -> bool {
        let Some(Parcel { key, content, sent, failure, .. }) = &mut self.parcel else {
            return true;
        };
        let sent_before = *sent;
        // As long as there is no result, it may have been executed.
        sent.get_or_insert_with(Instant::now);
        let Err(failed) = self.outbox.deliver(key, *content).await else {
            self.parcel = None;
            return true;
        };
        *failure = Some(failed.reason);
        if !failed.may_have_run {
            *sent = sent_before;
        }
        failed.reason == UnavailableReason::WrongType
    }
}

impl Drop for SentParcel {
    fn drop(&mut self) {
        let mut queue = self.outbox.queue.lock();
        queue.under_way -= 1;
        let mut lost = Vec::new();
        match self.parcel.take() {
            Some(it) if it.failure == Some(UnavailableReason::WrongType) => lost.push(it),
            Some(it) => queue.waiting.push_back(it),
            None => {}
        }
        if !queue.waiting.is_empty() && !queue.task.is_running() {
            queue.task.start(Arc::clone(&self.outbox).send_again());
        }
        lose(queue, &lost);
        self.outbox.ended.notify_waiters();
    }
}

impl Drop for ExpectedReply {
    fn drop(&mut self) {
        self.outbox.queue.lock().expected -= 1;
        self.outbox.ended.notify_waiters();
    }
}

impl PostedQueue {
    fn is_full(&self) -> bool {
        self.waiting.len() + self.under_way >= MAX_WAITING
    }

    /// Removes the commands for which it is too late.
    fn take_late(&mut self) -> Vec<Parcel> {
        let now = Instant::now();
        if !self.waiting.iter().any(|parcel| parcel.is_late(now)) {
            return Vec::new();
        }
        let all = mem::take(&mut self.waiting).into_iter();
        let (late, waiting): (Vec<_>, Vec<_>) = all.partition(|parcel| parcel.is_late(now));
        self.waiting = waiting.into();
        late
    }
}

/// Counts lost commands. Once a [`PAUSE`], logs the number of those since the last time, without
/// the lock: subscribers are foreign code.
fn lose(mut queue: MutexGuard<'_, PostedQueue>, lost: &[Parcel]) {
    let Some(newest) = lost.last() else { return };
    queue.lost += lost.len();
    let (now, all) = (Instant::now(), queue.lost);
    let is_due = queue.logged.is_none_or(|(at, _)| now >= at + PAUSE);
    let before = is_due.then(|| queue.logged.replace((now, all)));
    drop(queue);
    for parcel in lost {
        telemetry::unsent(parcel.key.name.text(), parcel.content.kind());
    }
    if let Some(before) = before {
        let unlogged = all - before.map_or(0, |(_, logged)| logged);
        telemetry::tell_unsent(
            unlogged,
            newest.key.name.text(),
            newest.content.kind(),
            newest.content.loss(),
            newest.failure,
        );
    }
}

impl Outbox {
    pub(super) fn new(store: Arc<RedisStore>) -> Arc<Self> {
        Arc::new(Self {
            store,
            queue: Mutex::default(),
            ended: Notify::default(),
            on_delivery: OnceLock::new(),
        })
    }

    /// Sends a command that nobody awaits.
    pub(crate) fn post(self: &Arc<Self>, key: Key, content: Content) {
        if let Some(command) = self.place(key, content, false) {
            background::start(async {
                command.send().await;
            });
        }
    }

    /// Sends a command, and waits for the first attempt. One without an answer is sent again.
    pub(crate) async fn send(self: &Arc<Self>, key: Key, content: Content) {
        if let Some(command) = self.place(key, content, true) {
            command.send().await;
        }
    }

    /// Lets a flush wait for a late reply.
    pub(super) fn expect(self: &Arc<Self>) -> ExpectedReply {
        self.queue.lock().expected += 1;
        ExpectedReply { outbox: Arc::clone(self) }
    }

    /// Returns a command that is to be sent now. Others wait while Redis does not answer, unless
    /// this one `is_first`.
    fn place(self: &Arc<Self>, key: Key, content: Content, is_first: bool) -> Option<SentParcel> {
        let parcel = Parcel::new(key, content);
        let mut queue = self.queue.lock();
        // What comes too late for Redis makes room first.
        let mut lost = if queue.is_full() { queue.take_late() } else { Vec::new() };
        let mut command = None;
        if queue.is_full() {
            lost.push(parcel);
        } else if queue.task.is_running() && !is_first {
            queue.waiting.push_back(parcel);
        } else {
            queue.under_way += 1;
            command = Some(SentParcel { outbox: Arc::clone(self), parcel: Some(parcel) });
        }
        lose(queue, &lost);
        command
    }

    /// Takes commands that wait.
    fn take(self: &Arc<Self>, most: usize) -> Vec<SentParcel> {
        let mut queue = self.queue.lock();
        let late = queue.take_late();
        let count = queue.waiting.len().min(most);
        queue.under_way += count;
        let under_way = |parcel| SentParcel { outbox: Arc::clone(self), parcel: Some(parcel) };
        let commands = queue.waiting.drain(..count).map(under_way).collect();
        lose(queue, &late);
        commands
    }

    /// Sends each command that waits now once. Returns the numbers of those that were sent, and of
    /// those that Redis has answered.
    ///
    /// One that is not answered ends no round: the others may be for another server.
    async fn send_round(self: &Arc<Self>) -> (usize, usize) {
        let waiting = self.queue.lock().waiting.len();
        let (mut sent, mut answered) = (0, 0);
        while sent < waiting {
            let commands = self.take(MAX_BATCH.min(waiting - sent));
            if commands.is_empty() {
                break;
            }
            sent += commands.len();
            let replies = join_all(commands.into_iter().map(SentParcel::send)).await;
            answered += replies.into_iter().filter(|is_answered| *is_answered).count();
            // Those that an open circuit breaker refuses end at once, and the thread has other
            // tasks.
            yield_now().await;
        }
        (sent, answered)
    }

    /// Sends what waits, until nothing does or the limiter is dropped.
    async fn send_again(mut self: Arc<Self>) {
        let mut backoff = BACKOFF.clone();
        loop {
            // Weak during the pause: if the limiter is dropped, the task ends.
            let outbox = Arc::downgrade(&self);
            drop(self);
            sleep(backoff.next()).await;
            let Some(used) = outbox.upgrade() else { return };
            self = used;
            loop {
                let (sent, answered) = self.send_round().await;
                if answered > 0 {
                    backoff.reset();
                }
                if self.ends_task() {
                    return;
                }
                // What is left of this round waits for a pause, also while other servers answer.
                if answered < sent {
                    break;
                }
            }
        }
    }

    /// Ends the task that asks, if nothing waits.
    fn ends_task(&self) -> bool {
        let mut queue = self.queue.lock();
        let ends = queue.waiting.is_empty();
        if ends {
            queue.task = Worker::default();
        }
        ends
    }

    async fn deliver(&self, key: &Key, content: Content) -> Result<(), Unanswered> {
        match content {
            Content::Settle(settle) | Content::Leave(settle) => {
                self.store.settle(key, settle).await?;
            }
            Content::Release { id, .. } => {
                let command = |_| release(key, id).into();
                self.store.servers.change(key, self.store.deadline_from_now(), command).await?;
            }
        }
        if let Some(call) = self.on_delivery.get() {
            call(key.as_key_ref(), content);
        }
        Ok(())
    }

    /// Returns the commands that wait or are under way, and those that were lost so far.
    fn left(&self) -> (usize, usize) {
        let queue = self.queue.lock();
        (queue.waiting.len() + queue.under_way, queue.lost)
    }

    /// Waits until no command is under way, and no late reply is awaited.
    async fn none_under_way(&self) {
        loop {
            let ended = self.ended.notified();
            let is_over = {
                let queue = self.queue.lock();
                queue.under_way + queue.expected == 0
            };
            if is_over {
                return;
            }
            ended.await;
        }
    }

    /// Sends what is posted, and waits for what others send and for late replies. Returns the
    /// number of commands that could not be sent, and of replies that have not come.
    pub(super) async fn flush(self: &Arc<Self>) -> (usize, usize) {
        let (_, lost_before) = self.left();
        // Until a round gets no answer: nothing waits any more, or Redis is away.
        while self.send_round().await.1 > 0 {}
        // Commands that others send take at most the deadline, and wait again if they fail. Late
        // replies are there as soon as Redis answers.
        let _ = timeout(2 * self.store.deadline, self.none_under_way()).await;
        while self.send_round().await.1 > 0 {}
        // Before the commands: one that follows a reply meanwhile is in one of both numbers at
        // least.
        let unanswered = self.queue.lock().expected;
        let (left, lost) = self.left();
        (left + lost - lost_before, unanswered)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;

    #[test]
    fn a_look_into_an_empty_outbox_notifies_nobody() {
        let outbox = Outbox::new(RedisStore::without_a_server());
        let mut ended = pin!(outbox.ended.notified());
        assert!(ended.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(outbox.take(1).is_empty());
        assert!(ended.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
}
