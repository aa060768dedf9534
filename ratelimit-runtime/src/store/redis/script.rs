//! The scripts: which one decides, what it is given, what its reply means.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
};

use once_cell::sync::Lazy;
use redis::Cmd;

use crate::{
    error::UnavailableReason,
    key::Key,
    rules::Algorithm,
    store::{Outcome, Request},
};

/// A script's text and, computed once, the digest that the server knows it by.
struct Script {
    text: &'static str,
    sha1: Lazy<redis::Script>,
}

macro_rules! script {
    ($file:literal) => {
        Script {
            text: include_str!($file),
            sha1: Lazy::new(|| redis::Script::new(include_str!($file))),
        }
    };
}

static SLIDING_WINDOW: Script = script!("sliding_window.lua");
static SLIDING_COUNTER: Script = script!("sliding_counter.lua");
static FIXED_WINDOW: Script = script!("fixed_window.lua");
static TOKEN_BUCKET: Script = script!("token_bucket.lua");

impl Script {
    fn of(algorithm: Algorithm) -> &'static Self {
        match algorithm {
            Algorithm::SlidingWindow => &SLIDING_WINDOW,
            Algorithm::SlidingCounter => &SLIDING_COUNTER,
            Algorithm::FixedWindow => &FIXED_WINDOW,
            Algorithm::TokenBucket => &TOKEN_BUCKET,
        }
    }
}

/// One call of a script, which may have to be sent twice.
pub(super) struct Call<'a> {
    script: &'static Script,
    key: &'a Key,
    request: Request<'a>,
    /// What the call's units are called in a log.
    id: Option<u64>,
}

impl<'a> Call<'a> {
    pub(super) fn new(key: &'a Key, request: Request<'a>) -> Self {
        let algorithm = request.policy.algorithm();
        let logged = request.record && algorithm == Algorithm::SlidingWindow;
        Self { script: Script::of(algorithm), key, request, id: logged.then(next_id) }
    }

    /// The command for a server that knows the script.
    pub(super) fn evalsha(&self) -> Cmd {
        self.command("EVALSHA", self.script.sha1.get_hash())
    }

    /// The command for any server.
    pub(super) fn eval(&self) -> Cmd {
        self.command("EVAL", self.script.text)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let Request { policy, cost, record } = self.request;
        let mut command = redis::cmd(name);
        command.arg(script).arg(1).arg(self.key.as_bytes());
        match (policy.algorithm(), self.id) {
            (Algorithm::SlidingWindow, Some(id)) => command.arg(id),
            (Algorithm::SlidingWindow, None) => command.arg(""),
            _ => command.arg(u8::from(record)),
        };
        command.arg(cost);
        if policy.algorithm() != Algorithm::FixedWindow {
            command.arg(u8::from(policy.counts_rejected()));
        }
        for tier in policy.tiers() {
            match policy.algorithm() {
                Algorithm::SlidingWindow | Algorithm::FixedWindow => {
                    command.arg(tier.micros()).arg(tier.threshold())
                }
                Algorithm::SlidingCounter => {
                    command.arg(tier.micros()).arg(tier.threshold()).arg(tier.tick())
                }
                Algorithm::TokenBucket => {
                    let bucket = policy.bucket(*tier);
                    command.arg(bucket.token).arg(bucket.refill).arg(bucket.full)
                }
            };
        }
        command
    }
}

pub(super) fn decode(reply: [i64; 5]) -> Result<Outcome, UnavailableReason> {
    let [admitted, tier, remaining, wait, reset] = reply;
    let outcome = || {
        Some(Outcome {
            admitted: admitted == 1,
            tier: tier.try_into().ok()?,
            remaining: remaining.try_into().ok()?,
            wait: wait.try_into().ok()?,
            reset: reset.try_into().ok()?,
        })
    };
    outcome().ok_or(UnavailableReason::StoreError)
}

/// A new member for the log: unlike any other of this or another process.
fn next_id() -> u64 {
    static SEED: Lazy<RandomState> = Lazy::new(RandomState::new);
    static CALLS: AtomicU64 = AtomicU64::new(0);
    // 52 bits: what a double in the script holds exactly, with room to count on from there.
    SEED.hash_one(CALLS.fetch_add(1, Ordering::Relaxed)) >> 12
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_exact_in_a_double_and_do_not_repeat() {
        let ids: HashSet<u64> = (0..100_000).map(|_| next_id()).collect();
        assert_eq!(ids.len(), 100_000);
        assert!(ids.iter().all(|id| *id < 1 << 52));
    }

    #[test]
    fn a_reply_out_of_range_is_an_error() {
        assert!(decode([1, 0, 1, 0, 0]).is_ok());
        assert_eq!(decode([1, 0, -1, 0, 0]), Err(UnavailableReason::StoreError));
    }
}
