//! What came of a command instead of a reply, and what that means for a call.

use redis::{ErrorKind, RedisError};

use crate::error::UnavailableReason;

pub(super) enum Failure {
    /// The server's breaker is open, for this reason; nothing was sent.
    NotAsked(UnavailableReason),
    /// The server does not know the script; nothing was executed.
    UnknownScript,
    /// Another node of the cluster has the key, for good or during a move of its slot; nothing was
    /// executed.
    Moved(Address),
    Ask(Address),
    /// The connection was lost before the reply came: executed or not, nobody knows.
    Lost,
    Because(UnavailableReason),
}

/// A node's address as a cluster tells it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Failure {
    pub(super) fn of(error: &RedisError) -> Self {
        let moved = |to: fn(Address) -> Self| {
            address(error).map_or_else(|| UnavailableReason::StoreError.into(), to)
        };
        match error.code() {
            Some("NOSCRIPT") => Self::UnknownScript,
            Some("MOVED") => moved(Self::Moved),
            Some("ASK") => moved(Self::Ask),
            Some("ERR") => inside_script(&describe(error)).into(),
            Some(code) => reason(code).unwrap_or(UnavailableReason::StoreError).into(),
            None if error.kind() == ErrorKind::AuthenticationFailed => {
                UnavailableReason::NotPermitted.into()
            }
            None => Self::Lost,
        }
    }

    /// What it is for a call that ends with it.
    pub(super) fn reason(&self) -> UnavailableReason {
        match self {
            Self::NotAsked(reason) | Self::Because(reason) => *reason,
            Self::Lost => UnavailableReason::Disconnected,
            Self::Moved(_) | Self::Ask(_) => UnavailableReason::Redirected,
            Self::UnknownScript => UnavailableReason::StoreError,
        }
    }

    /// Whether the connection is of no more use: it is broken, or leads to where nothing can be
    /// written.
    pub(super) fn is_of_the_connection(&self) -> bool {
        matches!(self, Self::Lost | Self::Because(UnavailableReason::ReadOnly))
    }

    /// Whether another attempt would charge the call once: nothing was executed, or it would be
    /// noticed.
    pub(super) fn may_be_repeated(&self, is_noticed: bool) -> bool {
        match self {
            Self::Lost => is_noticed,
            failure => matches!(failure, Self::Because(UnavailableReason::ReadOnly)),
        }
    }
}

/// What a code of the server's means.
fn reason(code: &str) -> Option<UnavailableReason> {
    Some(match code {
        "WRONGTYPE" => UnavailableReason::WrongType,
        "READONLY" => UnavailableReason::ReadOnly,
        "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "BUSY" => {
            UnavailableReason::NotReady
        }
        "OOM" | "MISCONF" | "NOREPLICAS" => UnavailableReason::RefusesWrites,
        "NOPERM" | "NOAUTH" | "WRONGPASS" => UnavailableReason::NotPermitted,
        _ => return None,
    })
}

/// What an error of a command inside a script means, by its words: that a command or a key is not
/// permitted has no code there, and before version 7 the code stands within the script's own error,
/// `ERR Error running script (..): -OOM command not allowed ..`.
fn inside_script(error: &str) -> UnavailableReason {
    if error.contains("can't run this command") || error.contains("ACL failure in script") {
        return UnavailableReason::NotPermitted;
    }
    let mut words = error.split_ascii_whitespace().map(|word| word.trim_start_matches('-'));
    words.find_map(reason).unwrap_or(UnavailableReason::StoreError)
}

/// The address in `MOVED slot host:port` and `ASK slot host:port`.
fn address(error: &RedisError) -> Option<Address> {
    let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
    Some(Address { host: host.to_owned(), port: port.parse().ok()? })
}

impl From<UnavailableReason> for Failure {
    fn from(reason: UnavailableReason) -> Self {
        Self::Because(reason)
    }
}

impl From<Failure> for UnavailableReason {
    fn from(failure: Failure) -> Self {
        failure.reason()
    }
}

/// The server's or the system's words, without what the client puts around them.
pub(super) fn describe(error: &RedisError) -> String {
    if error.kind() == ErrorKind::Parse {
        return "what answers there does not speak Redis's protocol".to_owned();
    }
    let words = error.detail().map_or_else(
        // What follows the words is the client's own classification.
        || error.to_string().split(" - ").next().unwrap_or_default().to_owned(),
        str::to_owned,
    );
    // Of a command that it does not know a server repeats the arguments: those of AUTH are a login.
    match words.split_once(", with args beginning with") {
        Some((words, _)) => words.to_owned(),
        None => words,
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
    fn the_arguments_of_an_unknown_command_are_not_told() {
        let answer =
            "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'me' 'zebra' ";
        let error = redis::parse_redis_value(format!("-{answer}\r\n").as_bytes())
            .and_then(redis::Value::extract_error)
            .unwrap_err();
        assert_eq!(describe(&error), "unknown command 'HELLO'");
    }

    #[test]
    fn each_code_has_its_meaning_also_inside_a_script_of_an_older_server() {
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
        assert_eq!(reason_of("MOVED 1 127.0.0.1:7001"), Reason::Redirected);
        assert_eq!(reason_of("NOSCRIPT No matching script"), Reason::StoreError);
    }

    #[test]
    fn a_redirection_has_an_address() {
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
