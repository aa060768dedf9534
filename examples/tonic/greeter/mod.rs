//! `greeter.v1.Greeter` as tonic generates it, and its messages.

/// Whom to greet.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HelloRequest {
    /// The name.
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

/// The greeting.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HelloReply {
    /// Its text.
    #[prost(string, tag = "1")]
    pub(crate) message: String,
}

mod generated {
    #![allow(clippy::pedantic, missing_docs, unreachable_pub, reason = "generated code")]

    use super::{HelloReply, HelloRequest};

    include!(concat!(env!("OUT_DIR"), "/greeter.v1.Greeter.rs"));
}

pub(crate) use generated::{greeter_client, greeter_server};
