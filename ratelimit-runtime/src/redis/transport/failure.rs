//! The failures of commands, and the reasons that calls end with.

use std::io;

use redis::{ErrorKind, RedisError};

use crate::error::UnavailableReason;

/// The result of a command without a reply.
pub(crate) enum Failure {
    /// The server's circuit breaker is open, for this reason; nothing was sent.
    BreakerOpen(UnavailableReason),
    /// The server does not have the script in its cache; nothing was executed.
    UnknownScript,
    /// Another node of the cluster has the key's slot, permanently; nothing was executed.
    Moved(Address),
    /// Another node of the cluster imports the key's slot; nothing was executed.
    Ask(Address),
    /// The keys of the command are on two nodes while their slot moves; nothing was executed.
    TryAgain,
    /// The connection was lost before the reply; the command may have been executed.
    ConnectionLost,
    Reason(UnavailableReason),
}

/// A node's address in a cluster's replies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Failure {
    /// Classifies an error and logs its message, which the reason lacks.
    pub(crate) fn logged(error: &RedisError) -> Self {
        let failure = Self::of(error);
        if !matches!(failure, Self::UnknownScript) {
            tracing::debug!(error = %message(error), "rate limit store error");
        }
        failure
    }

    /// Classifies an error.
    pub(crate) fn of(error: &RedisError) -> Self {
        let redirect = |to: fn(Address) -> Self| {
            address(error).map_or_else(|| UnavailableReason::StoreError.into(), to)
        };
        match error.code() {
            // First, because the same codes have other causes as well.
            Some("ERR" | "NOPERM") if lacks_scripts(&message(error)) => {
                UnavailableReason::NoScripts.into()
            }
            Some("NOSCRIPT") => Self::UnknownScript,
            Some("MOVED") => redirect(Self::Moved),
            Some("ASK") => redirect(Self::Ask),
            Some("TRYAGAIN") => Self::TryAgain,
            Some("ERR") => script_error_reason(&message(error)).into(),
            Some(code) => reason(code).unwrap_or(UnavailableReason::StoreError).into(),
            None if error.kind() == ErrorKind::AuthenticationFailed => {
                UnavailableReason::NotPermitted.into()
            }
            None if error.kind() == ErrorKind::Parse => UnavailableReason::UnexpectedReply.into(),
            None => Self::ConnectionLost,
        }
    }

    /// Returns the reason of a call that ends with this failure.
    pub(crate) fn reason(&self) -> UnavailableReason {
        match self {
            Self::BreakerOpen(reason) | Self::Reason(reason) => *reason,
            Self::ConnectionLost => UnavailableReason::Disconnected,
            Self::Moved(_) | Self::Ask(_) => UnavailableReason::Redirected,
            Self::TryAgain => UnavailableReason::NotReady,
            Self::UnknownScript => UnavailableReason::StoreError,
        }
    }

    /// Returns `true` if there was no reply until the deadline.
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Self::Reason(UnavailableReason::DeadlineExceeded))
    }

    /// Returns `true` if the connection is of no more use: it is broken, or its server is a
    /// replica.
    pub(super) fn needs_reconnect(&self) -> bool {
        matches!(self, Self::ConnectionLost | Self::Reason(UnavailableReason::ReadOnly))
    }

    /// Returns `true` if one more attempt may succeed and cannot charge the call twice: nothing was
    /// executed, or the command is idempotent.
    pub(crate) fn is_retryable(&self, is_idempotent: bool) -> bool {
        match self {
            Self::ConnectionLost | Self::Reason(UnavailableReason::UnexpectedReply) => {
                is_idempotent
            }
            failure => matches!(failure, Self::Reason(UnavailableReason::ReadOnly)),
        }
    }
}

/// Returns the reason for an error code.
fn reason(code: &str) -> Option<UnavailableReason> {
    Some(match code {
        "WRONGTYPE" => UnavailableReason::WrongType,
        "READONLY" => UnavailableReason::ReadOnly,
        "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "BUSY" => UnavailableReason::NotReady,
        "OOM" | "MISCONF" | "NOREPLICAS" => UnavailableReason::RefusesWrites,
        "NOPERM" | "NOAUTH" | "WRONGPASS" => UnavailableReason::NotPermitted,
        _ => return None,
    })
}

/// Returns `true` for the error of a server without `EVAL`, of a user who may not run it, or of a
/// Valkey that was started without its engine for Lua.
fn lacks_scripts(error: &str) -> bool {
    let names_eval = || error.contains("'eval") || error.contains("'EVAL");
    let refuses =
        error.starts_with("unknown command") || error.contains("has no permissions to run");
    refuses && names_eval() || error.starts_with("Could not find scripting engine")
}

/// Returns the reason for an error of a command inside a script, from its text. There a missing
/// permission has no code. Before Redis 7 the code is inside the script's own error, `ERR Error
/// running script (..): -OOM command not allowed ..`.
fn script_error_reason(error: &str) -> UnavailableReason {
    if error.contains("can't run this command") || error.contains("ACL failure in script") {
        return UnavailableReason::NotPermitted;
    }
    let mut words = error.split_ascii_whitespace().map(|word| word.trim_start_matches('-'));
    words.find_map(reason).unwrap_or(UnavailableReason::StoreError)
}

/// Returns the address in `MOVED slot host:port` or `ASK slot host:port`.
fn address(error: &RedisError) -> Option<Address> {
    let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
    Address::new(host, port.parse().ok()?)
}

/// The longest name of a host: what DNS allows.
const MAX_HOST: usize = 255;

impl Address {
    /// Returns the address, if its host can be one.
    pub(crate) fn new(host: &str, port: u16) -> Option<Self> {
        (host.len() <= MAX_HOST).then(|| Self { host: host.to_owned(), port })
    }
}

/// Returns the error of a connection that has ended.
pub(crate) fn broken() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

/// Returns the error of a connection whose server sent something that is no reply to its command.
pub(super) fn unexpected(what: &str) -> RedisError {
    (ErrorKind::Parse, "the server does not use Redis's protocol", what.to_owned()).into()
}

impl From<UnavailableReason> for Failure {
    fn from(reason: UnavailableReason) -> Self {
        Self::Reason(reason)
    }
}

impl From<Failure> for UnavailableReason {
    fn from(failure: Failure) -> Self {
        failure.reason()
    }
}

/// Returns the server's or the system's message, without the client's additions.
pub(crate) fn message(error: &RedisError) -> String {
    if error.kind() == ErrorKind::Parse {
        let what = error.detail().unwrap_or("bytes that are no reply");
        return format!("the server does not use Redis's protocol: it sent {what}");
    }
    let message = error.detail().map_or_else(
        // The client's own classification follows the dash.
        || error.to_string().split(" - ").next().unwrap_or_default().to_owned(),
        str::to_owned,
    );
    // A server quotes the arguments of an unknown command: those of AUTH are a login.
    match message.split_once(", with args beginning with") {
        Some((message, _)) => message.to_owned(),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason_of(answer: &str) -> UnavailableReason {
        let error = redis::parse_redis_value(format!("-{answer}\r\n").as_bytes())
            .and_then(redis::Value::extract_error)
            .unwrap_err();
        Failure::of(&error).into()
    }

    #[test]
    fn arguments_of_an_unknown_command_are_not_in_the_message() {
        let answer =
            "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'me' 'zebra' ";
        let error = redis::parse_redis_value(format!("-{answer}\r\n").as_bytes())
            .and_then(redis::Value::extract_error)
            .unwrap_err();
        assert_eq!(message(&error), "unknown command 'HELLO'");
    }

    #[test]
    fn each_code_has_its_reason_also_inside_a_script_of_an_older_server() {
        use UnavailableReason as Reason;

        for (code, expected) in [
            ("OOM", Reason::RefusesWrites),
            ("MISCONF", Reason::RefusesWrites),
            ("NOREPLICAS", Reason::RefusesWrites),
            ("READONLY", Reason::ReadOnly),
            ("WRONGTYPE", Reason::WrongType),
            ("LOADING", Reason::NotReady),
            ("MASTERDOWN", Reason::NotReady),
            ("CLUSTERDOWN", Reason::NotReady),
            ("BUSY", Reason::NotReady),
            ("NOPERM", Reason::NotPermitted),
            ("NOAUTH", Reason::NotPermitted),
            ("ERR", Reason::StoreError),
        ] {
            assert_eq!(reason_of(&format!("{code} because")), expected);
            let inside =
                "ERR Error running script (call to f_0a): @user_script:9: @user_script: 9:";
            assert_eq!(reason_of(&format!("{inside} -{code} because")), expected);
            assert_eq!(reason_of(&format!("{inside} {code} because")), expected);
        }
        for words in
            ["The user executing the script can't run this command", "ACL failure in script: x"]
        {
            assert_eq!(reason_of(&format!("ERR {words}")), Reason::NotPermitted);
        }
        for words in [
            "NOPERM this user has no permissions to run the 'eval' command or its subcommand",
            "NOPERM User limiter has no permissions to run the 'evalsha' command",
            "ERR unknown command 'EVALSHA', with args beginning with: '0a' '1' ",
            "ERR Could not find scripting engine 'lua'",
        ] {
            assert_eq!(reason_of(words), Reason::NoScripts);
        }
        assert_eq!(reason_of("MOVED 1 127.0.0.1:7001"), Reason::Redirected);
        assert_eq!(reason_of("TRYAGAIN Multiple keys request"), Reason::NotReady);
        assert_eq!(reason_of("NOSCRIPT No matching script"), Reason::StoreError);
    }

    #[test]
    fn a_redirect_has_an_address() {
        for (answer, host) in
            [("MOVED 1 h:7", "h"), ("ASK 1 h:7", "h"), ("MOVED 1 ::1:7", "::1"), ("ASK 1 :7", "")]
        {
            let error = redis::parse_redis_value(format!("-{answer}\r\n").as_bytes())
                .and_then(redis::Value::extract_error)
                .unwrap_err();
            let (Failure::Moved(address) | Failure::Ask(address)) = Failure::of(&error) else {
                panic!("{answer}");
            };
            assert_eq!(address, Address { host: host.to_owned(), port: 7 });
        }
    }
}
