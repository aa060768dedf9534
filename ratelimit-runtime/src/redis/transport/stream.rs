//! The stream below a connection, which reads an idle socket at once.

use std::{
    io::{self, Read},
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll},
};

use redis::{
    aio::AsyncStream,
    io::tcp::socket2::{SockRef, Socket},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(super) type BoxedStream = Box<dyn AsyncStream + Send + Unpin>;

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
