//! Streams below a connection: one meters its bytes, the other reads an idle socket at once.

use std::{
    io::{self, Read},
    mem::MaybeUninit,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use redis::{
    aio::AsyncStream,
    io::tcp::socket2::{SockRef, Socket},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(super) type BoxedStream = Box<dyn AsyncStream + Send + Unpin>;

/// The counters of one connection's traffic.
#[derive(Clone, Default)]
pub(super) struct Traffic(Arc<TrafficCounters>);

#[derive(Default)]
struct TrafficCounters {
    writes: AtomicU64,
    exceeded_limit: AtomicBool,
}

impl Traffic {
    /// Returns the number of writes.
    pub(super) fn writes(&self) -> u64 {
        self.0.writes.load(Ordering::Acquire)
    }

    /// Returns `true` if the connection was ended because a reply was longer than its limit.
    pub(super) fn exceeded_limit(&self) -> bool {
        self.0.exceeded_limit.load(Ordering::Acquire)
    }
}

/// A stream that counts its writes, and fails when more than a limit is read without one.
pub(super) struct MeteredStream<S> {
    stream: S,
    traffic: Traffic,
    /// The most bytes that may be read without a write.
    limit: usize,
    read: usize,
}

impl<S> MeteredStream<S> {
    pub(super) fn new(stream: S, traffic: Traffic, limit: usize) -> Self {
        Self { stream, traffic, limit, read: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MeteredStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.read = self.read.saturating_add(buffer.filled().len() - before);
        if self.read > self.limit {
            self.traffic.0.exceeded_limit.store(true, Ordering::Release);
            return Poll::Ready(Err(io::Error::other("reply longer than the limit")));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MeteredStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // Before the attempt: without a count nothing was written.
        self.traffic.0.writes.fetch_add(1, Ordering::Release);
        self.read = 0;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Lends a stream: the lender can take it back while the borrower still exists.
pub(super) fn lend<S>(stream: S) -> (Lender<S>, LentStream<S>) {
    let stream = Arc::new(Mutex::new(Some(stream)));
    (Lender(Arc::clone(&stream)), LentStream(stream))
}

pub(super) struct Lender<S>(Arc<Mutex<Option<S>>>);

/// A stream that has ended once it is taken back.
pub(super) struct LentStream<S>(Arc<Mutex<Option<S>>>);

impl<S> Lender<S> {
    /// Returns the stream, if nobody has broken it.
    pub(super) fn reclaim(&self) -> Option<S> {
        self.0.lock().ok()?.take()
    }
}

impl<S: Unpin> LentStream<S> {
    fn poll<T>(
        &self,
        poll: impl FnOnce(Pin<&mut S>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let ended = || io::Error::from(io::ErrorKind::BrokenPipe);
        let mut stream = self.0.lock().map_err(|_| ended())?;
        poll(Pin::new(stream.as_mut().ok_or_else(ended)?))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LentStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_read(context, buffer))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LentStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(|stream| stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_shutdown(context))
    }
}

/// A socket that is read directly while no reply is due, because the runtime may not have polled it
/// yet. So the end of an idle connection is read before the next command is written.
pub(super) struct EagerSocket<S> {
    socket: S,
    /// `true` if nothing was written since the last read.
    is_idle: bool,
    /// `true` if it was read directly since the last flush, which ends each round of commands.
    is_checked: bool,
}

impl<S> EagerSocket<S> {
    pub(super) fn new(socket: S) -> Self {
        Self { socket, is_idle: false, is_checked: false }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for EagerSocket<S>
where
    for<'a> SockRef<'a>: From<&'a S>,
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut read = Pin::new(&mut self.socket).poll_read(context, buffer);
        // The runtime wakes the task for later bytes.
        if read.is_pending() && self.is_idle && !self.is_checked {
            self.is_checked = true;
            read = read_now(&SockRef::from(&self.socket), buffer);
        }
        if read.is_ready() {
            self.is_idle = true;
            self.is_checked = false;
        }
        read
    }
}

/// Reads the bytes that have arrived, without waiting.
fn read_now(mut socket: &Socket, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
    let arrived = match socket.peek(&mut [MaybeUninit::uninit()]) {
        // The end of the stream.
        Ok(0) => Ok(0),
        Ok(_) => socket.read(buffer.initialize_unfilled()),
        Err(error) => Err(error),
    };
    match arrived {
        Ok(length) => {
            buffer.advance(length);
            Poll::Ready(Ok(()))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for EagerSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_idle = false;
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_checked = false;
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
