//! The outbox: commands whose result no call awaits.
//!
//! A command is sent as it is posted, before later commands of its thread. While Redis cannot be reached,
//! commands wait, and one background task sends them again.

use std::{
    collections::VecDeque,
    future::poll_fn,
    mem,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::Poll,
    time::Duration,
};

use tokio::{sync::Notify, task::JoinHandle, time::Instant};

use super::{RedisBackend, background, backoff::Backoff, client::Unanswered, script::SettleCall};
use crate::{
    error::UnavailableReason,
    key::Key,
    request::Settle,
    sync::Mutex,
    telemetry::{self, Unsent},
};

/// The most commands that wait. A further one is lost.
const MAX_WAITING: usize = 10_000;

/// The most commands that are sent before the first of them is answered.
const MAX_BATCH: usize = 64;

/// The pauses between attempts while Redis cannot be reached.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// The pause between two log lines about lost commands.
const PAUSE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Outbox {
    queue: Mutex<PostedQueue>,
    /// Notified when commands that were under way have arrived, or wait again.
    ended: Notify,
}

#[derive(Default)]
struct PostedQueue {
    waiting: VecDeque<Parcel>,
    /// The commands that are being sent.
    under_way: usize,
    /// The task that sends what waits.
    task: Option<JoinHandle<()>>,
    /// The number of lost commands, and of those that are not logged yet.
    lost: usize,
    untold: usize,
    told: Option<Instant>,
}

/// A command that waits or is under way.
pub(super) struct Parcel {
    key: Key,
    content: Content,
    /// The time from which the command changes nothing any more.
    ends: Instant,
    /// The time of the first attempt that may have been executed.
    sent: Option<Instant>,
    /// The present attempt, and its result.
    attempted: OnceLock<Instant>,
    result: OnceLock<Result<(), Unanswered>>,
    /// The failure of the last attempt.
    failure: Option<UnavailableReason>,
}

/// The change that a command makes.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    Settle(Settle),
    /// The settle at 0 of a turn that no call takes.
    Leave(Settle),
    /// The release of a permit.
    Release {
        id: u64,
        timeout: Duration,
    },
}

impl Content {
    fn kind(self) -> Unsent {
        match self {
            Self::Settle(_) => Unsent::Settle,
            Self::Leave(_) => Unsent::Leave,
            Self::Release { .. } => Unsent::Release,
        }
    }

    /// Returns the time from now on in which the command is of use.
    fn lasts(self) -> Duration {
        match self {
            Self::Settle(settle) | Self::Leave(settle) => settle.lasts().into(),
            Self::Release { timeout, .. } => timeout,
        }
    }

    /// Returns the time from the first attempt in which further ones change nothing more.
    fn is_known_for(self) -> Duration {
        match self {
            Self::Settle(settle) | Self::Leave(settle) => SettleCall::is_known_for(settle),
            Self::Release { timeout, .. } => timeout,
        }
    }
}

impl Parcel {
    fn new(key: Key, content: Content) -> Self {
        let ends = Instant::now() + content.lasts();
        let (sent, attempted, result, failure) = Default::default();
        Self { key, content, ends, sent, attempted, result, failure }
    }

    /// Returns `true` if another attempt would come too late.
    fn is_late(&self, now: Instant) -> bool {
        let is_forgotten = |sent: Instant| now >= sent + self.content.is_known_for();
        now >= self.ends || self.sent.is_some_and(is_forgotten)
    }

    /// Returns `true` if Redis has answered the present attempt for good: the command has arrived, or
    /// its key has a value of another type, which stays.
    fn is_answered(&self) -> bool {
        match self.result.get() {
            Some(Ok(())) => true,
            Some(Err(failed)) => failed.reason == UnavailableReason::WrongType,
            None => false,
        }
    }

    /// Ends an attempt. Returns `false` if the command has arrived.
    fn waits_again(&mut self) -> bool {
        let (attempted, result) = (self.attempted.take(), self.result.take());
        if let Some(Ok(())) = result {
            return false;
        }
        let failed = result.and_then(Result::err);
        self.failure = failed.map(|failed| failed.reason).or(self.failure);
        // Without a result, the task or the flush was dropped.
        if failed.is_none_or(|failed| failed.may_have_run) {
            self.sent = self.sent.or(attempted);
        }
        true
    }
}

/// Commands under way. When it is dropped, those that have not arrived wait again.
struct Batch {
    backend: Arc<RedisBackend>,
    parcels: Vec<Parcel>,
}

impl Drop for Batch {
    fn drop(&mut self) {
        let mut lost = Vec::new();
        let mut queue = self.backend.outbox.queue.lock();
        queue.under_way -= self.parcels.len();
        for mut parcel in mem::take(&mut self.parcels) {
            if !parcel.waits_again() {
                continue;
            }
            if parcel.failure == Some(UnavailableReason::WrongType) {
                lost.push(parcel);
            } else {
                queue.waiting.push_back(parcel);
            }
        }
        if !queue.waiting.is_empty() && !queue.has_task() {
            queue.task = Some(background::spawn(Arc::clone(&self.backend).send_again()));
        }
        let told = queue.lose(&lost);
        drop(queue);
        telemetry_of(&lost, told);
        self.backend.outbox.ended.notify_waiters();
    }
}

impl PostedQueue {
    fn has_task(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }

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

    /// Counts lost commands. Once a [`PAUSE`], returns the number to be logged: of those since the last
    /// time.
    fn lose(&mut self, lost: &[Parcel]) -> Option<usize> {
        if lost.is_empty() {
            return None;
        }
        self.lost += lost.len();
        self.untold += lost.len();
        let now = Instant::now();
        if self.told.is_some_and(|told| now < told + PAUSE) {
            return None;
        }
        self.told = Some(now);
        Some(mem::take(&mut self.untold))
    }
}

/// Records lost commands. To be called without the lock: subscribers are foreign code.
fn telemetry_of(lost: &[Parcel], told: Option<usize>) {
    for parcel in lost {
        telemetry::unsent(parcel.key.name.text(), parcel.content.kind());
    }
    if let (Some(told), Some(last)) = (told, lost.last()) {
        telemetry::tell_unsent(told, last.key.name.text(), last.content.kind(), last.failure);
    }
}

impl Batch {
    /// Sends the commands together. Returns `false` if Redis has answered none.
    async fn send(self) -> bool {
        let mut under_way: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = Vec::new();
        for parcel in &self.parcels {
            under_way.push(Box::pin(self.backend.send_parcel(parcel)));
        }
        poll_fn(|context| {
            under_way.retain_mut(|sent| sent.as_mut().poll(context).is_pending());
            if under_way.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        drop(under_way);
        self.parcels.iter().any(Parcel::is_answered)
    }
}

impl Outbox {
    /// Takes commands to be sent. If none waits, the task that asks has ended.
    fn take(&self, most: usize, is_task: bool) -> Vec<Parcel> {
        let mut queue = self.queue.lock();
        let late = queue.take_late();
        let told = queue.lose(&late);
        let count = queue.waiting.len().min(most);
        let parcels: Vec<_> = queue.waiting.drain(..count).collect();
        queue.under_way += count;
        if count == 0 && is_task {
            queue.task = None;
        }
        drop(queue);
        telemetry_of(&late, told);
        parcels
    }

    /// Returns the commands that wait or are under way, and those that were lost so far.
    fn left(&self) -> (usize, usize) {
        let queue = self.queue.lock();
        (queue.waiting.len() + queue.under_way, queue.lost)
    }
}

impl RedisBackend {
    /// Sends a command that nobody awaits.
    pub(crate) fn post(self: &Arc<Self>, key: Key, content: Content) {
        let parcel = Parcel::new(key, content);
        let mut queue = self.outbox.queue.lock();
        let mut lost = Vec::new();
        if queue.is_full() {
            lost = queue.take_late();
        }
        let mut batch = None;
        if queue.is_full() {
            lost.push(parcel);
        } else if queue.has_task() {
            queue.waiting.push_back(parcel);
        } else {
            queue.under_way += 1;
            batch = Some(Batch { backend: Arc::clone(self), parcels: vec![parcel] });
        }
        let told = queue.lose(&lost);
        drop(queue);
        telemetry_of(&lost, told);
        if let Some(batch) = batch {
            background::start(async move {
                batch.send().await;
            });
        }
    }

    /// Takes commands that wait, if any do.
    fn take_posted(self: &Arc<Self>, most: usize, is_task: bool) -> Option<Batch> {
        let parcels = self.outbox.take(most, is_task);
        // The end of a batch is notified, and without commands nothing has ended.
        (!parcels.is_empty()).then(|| Batch { backend: Arc::clone(self), parcels })
    }

    /// Sends what waits, until nothing does or the limiter is dropped.
    async fn send_again(mut self: Arc<Self>) {
        let mut backoff = BACKOFF.clone();
        loop {
            let limiter = Arc::downgrade(&self);
            drop(self);
            tokio::time::sleep(backoff.next()).await;
            let Some(used) = limiter.upgrade() else { return };
            self = used;
            // One is enough to see that Redis is back.
            let mut most = 1;
            loop {
                let Some(batch) = self.take_posted(most, true) else { return };
                if !batch.send().await {
                    break;
                }
                (backoff, most) = (BACKOFF.clone(), MAX_BATCH);
            }
        }
    }

    async fn send_parcel(&self, parcel: &Parcel) {
        parcel.attempted.get_or_init(Instant::now);
        let result = match parcel.content {
            Content::Settle(settle) | Content::Leave(settle) => {
                self.settle(&parcel.key, settle).await
            }
            Content::Release { id, .. } => {
                self.client.release(&parcel.key, id, Instant::now() + self.deadline).await
            }
        };
        if let (Ok(()), Some(call)) = (result, self.on_delivery.get()) {
            call(parcel.key.as_key_ref(), parcel.content);
        }
        // Set once: the last result was taken when the command waited again.
        let _ = parcel.result.set(result);
    }

    /// Gives all leases back, sends what is posted, and waits for what others send. Returns the number of
    /// commands that could not be sent.
    pub(crate) async fn flush(self: &Arc<Self>) -> usize {
        let leases = self.give_leases_back().await;
        let (_, lost_before) = self.outbox.left();
        loop {
            let ended = self.outbox.ended.notified();
            let goes_on = match self.take_posted(MAX_BATCH, false) {
                Some(batch) => batch.send().await,
                // Commands under way take at most the deadline.
                None => {
                    self.outbox.left().0 > 0
                        && tokio::time::timeout(2 * self.deadline, ended).await.is_ok()
                }
            };
            if !goes_on {
                let (left, lost) = self.outbox.left();
                return leases + left + lost - lost_before;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;
    use crate::{
        redis::{ConnectOptions, RedisClient, RedisOptions},
        request::OnStoreError,
    };

    #[test]
    fn a_look_into_an_empty_outbox_notifies_nobody() {
        let client = RedisClient::open_lazy("redis://127.0.0.1:1", &ConnectOptions::default());
        let options = RedisOptions {
            deadline: Duration::ZERO,
            on_store_error: OnStoreError::Deny,
            max_keys: 0,
            max_bytes: 0,
            deny_cache: 0,
            deny_cache_ttl: Duration::ZERO,
        };
        let backend = Arc::new(RedisBackend::new(client.unwrap(), options));
        let mut ended = pin!(backend.outbox.ended.notified());
        assert!(ended.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(backend.take_posted(1, false).is_none());
        assert!(ended.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
}
