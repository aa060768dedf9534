//! Commands whose replies name them.
//!
//! Replies match commands by their order alone. If a server or a proxy loses one, sends one twice
//! or sends one that nobody asked for, each later caller would get the decision of another, for as
//! long as the connection lives. So a call gives its script a number, which is the first one of the
//! reply.

use std::sync::atomic::{AtomicU32, Ordering};

use redis::{Cmd, Value};

/// A command, and the number by which its reply names it; none of a command that is no script.
pub(crate) struct Command {
    pub(crate) command: Cmd,
    pub(crate) echo: Option<u64>,
}

impl Command {
    /// Returns the call of a script with this number among its arguments.
    pub(crate) fn echoed(command: Cmd, echo: u64) -> Self {
        Self { command, echo: Some(echo) }
    }
}

impl From<Cmd> for Command {
    fn from(command: Cmd) -> Self {
        Self { command, echo: None }
    }
}

/// The count of different numbers, which is more than a connection has commands in flight. Short
/// numbers cost the server less.
const NUMBERS: u32 = 1 << 16;

/// Returns a number that no other call of this moment has.
pub(crate) fn next_echo() -> u64 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    u64::from(NEXT.fetch_add(1, Ordering::Relaxed) % NUMBERS + 1)
}

/// Returns `true` if a reply names its command. Replaces its first number by 1 if it is positive,
/// and by 0 otherwise.
pub(super) fn is_named(reply: &mut Value, echo: Option<u64>) -> bool {
    let Some(echo) = echo else { return true };
    let Value::Array(numbers) = reply else { return false };
    let Some(Value::Int(first)) = numbers.first_mut() else { return false };
    let is_named = first.unsigned_abs() == echo;
    *first = i64::from(*first > 0);
    is_named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_names_its_command_and_says_if_the_call_was_admitted() {
        let reply = |first: i64| Value::Array(vec![Value::Int(first), Value::Int(7)]);
        for (first, verdict) in [(5, 1), (-5, 0)] {
            let mut named = reply(first);
            assert!(is_named(&mut named, Some(5)));
            assert_eq!(named, reply(verdict));
        }
        let others =
            [reply(6), reply(-4), reply(0), Value::Int(5), Value::Nil, Value::Array(vec![])];
        for mut other in others {
            assert!(!is_named(&mut other, Some(5)), "{other:?}");
            assert!(is_named(&mut other, None));
        }
    }

    #[test]
    fn calls_of_one_moment_have_different_numbers() {
        let mut numbers: Vec<_> = (0..1_000).map(|_| next_echo()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 1_000);
        assert!(!numbers.contains(&0));
    }
}
