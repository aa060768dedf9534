//! The transport: commands to one server over connections of our own.
//!
//! It is not the client's own for three promises, of which a limiter needs each:
//!
//! - A reply is its call's. A call gives its command a [number](echo), which the reply names; a
//!   connection with another reply ends.
//! - Replies are bounded. A server cannot make this process keep more than [`Connector`] allows.
//! - Nothing is sent twice. A command whose connection ends before it was written may go over the
//!   next one. A command that was written is never sent again here.
//!
//! It costs less, too: a decision takes less than half of the client's processor time that it takes
//! over the multiplexed connection of the crate `redis`. That crate has the commands, the values
//! and the handshake.
//!
//! From a call down to the socket: [`PendingReply`] is the command under way, [`ManagedConnection`]
//! has the connection of the moment, [`Connection`](connection::Connection) is one of them,
//! [`Exchange`](exchange::Exchange) is shared by the call and the [task](multiplexer) that carries
//! the bytes of a [stream], and a [reader](resp) finds the replies in them. [`Connector`] makes
//! connections to a [`Target`].

mod connect_options;
mod connection;
mod connector;
mod credentials;
mod dial;
mod echo;
mod exchange;
mod failure;
mod managed;
mod multiplexer;
mod pending;
mod resp;
mod secrets;
mod stream;
mod target;
mod tls;

pub use self::credentials::Credentials;
pub(crate) use self::{connect_options::ConnectOptions, credentials::CredentialsProvider};
pub(super) use self::{
    connector::Connector,
    echo::{Command, next_echo},
    failure::{Address, Failure},
    managed::ManagedConnection,
    pending::PendingReply,
    target::{Kind, Target, beside},
};
#[cfg(any(test, fuzzing))]
pub(super) use self::{failure::message, resp::ReplyReader};
