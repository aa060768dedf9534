//! The logins of a connection, which are cut out of all texts of its server.

use std::sync::Arc;

use redis::{RedisError, Value, parse_redis_value};

use super::credentials::Credentials;
use crate::sync::Mutex;

/// The longest text of a server in an error or in the log, in characters.
const MAX_TEXT: usize = 200;

/// The text in place of a login.
const REDACTED: &str = "***";

/// The logins that a connection has used.
#[derive(Clone, Default)]
pub(super) struct Secrets(Arc<Mutex<Vec<Box<str>>>>);

impl Secrets {
    /// Adds a login.
    pub(super) fn add(&self, login: &Credentials) {
        let mut known = self.0.lock();
        for secret in login.secrets().filter(|it| !it.is_empty()) {
            if !known.iter().any(|it| **it == *secret) {
                known.push(secret.into());
            }
        }
        // One may be a part of another.
        known.sort_by_key(|it| usize::MAX - it.len());
    }

    /// Returns the error without logins, its text in one line of [`MAX_TEXT`] characters at most.
    pub(super) fn cleaned(&self, error: RedisError) -> RedisError {
        let text = error.detail().map(|detail| self.cleaned_text(detail));
        match (error.code(), text) {
            (Some(code), text) => {
                let code = self.cleaned_text(code);
                let line = format!("-{code} {}\r\n", text.unwrap_or_default());
                let cleaned = parse_redis_value(line.as_bytes()).and_then(Value::extract_error);
                cleaned.err().unwrap_or(error)
            }
            (None, Some(text)) => RedisError::from((error.kind(), "the server refuses", text)),
            (None, None) => error,
        }
    }

    fn cleaned_text(&self, text: &str) -> String {
        let mut cleaned = text.to_owned();
        for secret in self.0.lock().iter() {
            cleaned = cleaned.replace(&**secret, REDACTED);
        }
        let printable = |letter: char| if letter.is_control() { ' ' } else { letter };
        cleaned.chars().map(printable).take(MAX_TEXT).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(line: &str) -> RedisError {
        let value = parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        value.extract_error().unwrap_err()
    }

    #[test]
    fn logins_are_cut_out_of_errors_and_their_codes() {
        let secrets = Secrets::default();
        secrets.add(&Credentials::new("app", "app-password"));
        secrets.add(&Credentials::new("default", "later"));
        let cleaned = secrets.cleaned(error("ERR no HELLO AUTH app app-password, default later"));
        assert_eq!(cleaned.detail(), Some("no HELLO AUTH *** ***, default ***"));
        assert_eq!(cleaned.code(), Some("ERR"));
        let cleaned = secrets.cleaned(error("app-password"));
        assert!(!format!("{cleaned:?} {cleaned}").contains("app-password"), "{cleaned:?}");
    }

    #[test]
    fn a_text_is_one_short_line() {
        let long = "many\rlines\u{1b}[31m ".repeat(1_000);
        for line in [format!("ERR {long}"), long.replace(' ', "")] {
            let cleaned = Secrets::default().cleaned(error(&line));
            let text = format!("{:?}{:?}", cleaned.code(), cleaned.detail());
            assert!(text.len() < 3 * MAX_TEXT, "{}", text.len());
            assert!(!text.contains("\\r") && !text.contains("u{1b}"), "{text}");
        }
    }
}
