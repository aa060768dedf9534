//! A connection's bytes: they are read as soon as they have arrived, and no more than may be, and it is
//! known whether any were written.

use std::{
    io::{self, Read},
    mem::MaybeUninit,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use redis::io::tcp::socket2::{SockRef, Socket};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What went over a connection.
#[derive(Clone, Default)]
pub(super) struct Traffic(Arc<Counts>);

#[derive(Default)]
struct Counts {
    writes: AtomicU64,
    is_cut: AtomicBool,
}

impl Traffic {
    /// How often something was written.
    pub(super) fn writes(&self) -> u64 {
        self.0.writes.load(Ordering::Acquire)
    }

    /// Whether the connection was ended because a reply was longer than may be read.
    pub(super) fn is_cut(&self) -> bool {
        self.0.is_cut.load(Ordering::Acquire)
    }
}

/// A stream that counts its writes, and ends when more is read without one than may be.
pub(super) struct Counted<S> {
    stream: S,
    traffic: Traffic,
    /// So many bytes may be read without a write.
    limit: usize,
    read: usize,
}

impl<S> Counted<S> {
    pub(super) fn new(stream: S, traffic: Traffic, limit: usize) -> Self {
        Self { stream, traffic, limit, read: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.read = self.read.saturating_add(buffer.filled().len() - before);
        if self.read > self.limit {
            self.traffic.0.is_cut.store(true, Ordering::Release);
            return Poll::Ready(Err(io::Error::other("the reply is longer than may be read")));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // Before it is tried: what is not counted was not written.
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

/// A socket that is asked itself, as long as nothing is under way on it, whether something has
/// arrived: the runtime may not have heard of it yet. So the end of an idle connection is read
/// before the next command is written.
pub(super) struct Prompt<S> {
    socket: S,
    /// Nothing was written since something was read.
    is_idle: bool,
}

impl<S> Prompt<S> {
    pub(super) fn new(socket: S) -> Self {
        Self { socket, is_idle: false }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prompt<S>
where
    for<'a> SockRef<'a>: From<&'a S>,
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut read = Pin::new(&mut self.socket).poll_read(context, buffer);
        // The runtime wakes the task for what comes later.
        if read.is_pending() && self.is_idle {
            read = read_now(&SockRef::from(&self.socket), buffer);
        }
        self.is_idle |= read.is_ready();
        read
    }
}

/// Reads what has arrived.
fn read_now(mut socket: &Socket, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
    let arrived = match socket.peek(&mut [MaybeUninit::uninit()]) {
        // The end, which leaves the buffer as it is.
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

impl<S: AsyncWrite + Unpin> AsyncWrite for Prompt<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_idle = false;
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
