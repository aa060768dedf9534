//! Replies on the wire.

use redis::{RedisError, RedisResult, Value, parse_redis_value};

use super::failure::unexpected;

/// Takes replies from bytes as they arrive.
pub(crate) struct ReplyReader {
    /// The longest reply, in bytes.
    max_reply: usize,
    /// The end of the scanned part of the first reply.
    at: usize,
    /// The end of the bytes in which no line ends, from `at` on.
    searched: usize,
    /// The values that the first reply still lacks, nested ones included.
    missing: usize,
    /// The values that it has so far, complete or announced.
    values: usize,
}

/// A reply, and the number of its bytes.
pub(crate) struct Frame {
    pub(crate) reply: RedisResult<Value>,
    pub(crate) length: usize,
    /// `true` if the server sent it without a command.
    pub(super) is_push: bool,
}

/// The most values in a reply. Each costs more to parse than its bytes: a map of 2 000 ranges of
/// slots with three nodes each has 40 000 values, and 10 000 overrides have 20 000.
const MAX_VALUES: usize = 100_000;

/// The most numbers in an array that is read without the general parser.
const MAX_NUMBERS: u8 = 9;

impl ReplyReader {
    /// Returns a reader of replies of this many bytes at most.
    pub(crate) fn new(max_reply: usize) -> Self {
        Self { max_reply, at: 0, searched: 0, missing: 1, values: 1 }
    }

    /// Returns the first reply, if all of it is in `bytes`. More bytes may follow those that were
    /// there at the last call.
    ///
    /// # Errors
    ///
    /// When the bytes are no replies, or the first one is too long, also if only its beginning is
    /// there.
    pub(crate) fn next(&mut self, bytes: &[u8]) -> RedisResult<Option<Frame>> {
        if self.at == 0
            && let Some((numbers, length)) = numbers(bytes)
        {
            let reply = Ok(Value::Array(numbers));
            // What was searched is a part of this reply, not of the next one.
            self.searched = 0;
            return Ok(Some(Frame { reply, length, is_push: false }));
        }
        if !self.scan(bytes).ok_or_else(no_reply)? {
            let is_too_long = bytes.len() > self.max_reply || self.missing > self.max_reply;
            return if is_too_long {
                Err(unexpected("a reply that is too long"))
            } else {
                Ok(None)
            };
        }
        let length = self.at;
        *self = Self::new(self.max_reply);
        let frame = &bytes[..length];
        let reply = parse_redis_value(frame).map_err(|_| no_reply())?.extract_error();
        Ok(Some(Frame { reply, length, is_push: frame.first() == Some(&b'>') }))
    }

    /// Looks for the end of the first reply, and returns `true` if it is there, `None` if the bytes
    /// are no reply.
    fn scan(&mut self, bytes: &[u8]) -> Option<bool> {
        while self.missing > 0 {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let searched = self.searched.saturating_sub(self.at);
            let unsearched = rest.get(searched..).unwrap_or_default();
            let Some(end) = unsearched.windows(2).position(|two| two == b"\r\n") else {
                // The last byte may be the first of the end.
                self.searched = bytes.len().saturating_sub(1).max(self.at);
                return Some(false);
            };
            let end = searched + end;
            let (nested, text) = match rest[..end].split_first()? {
                (b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(', _) | (b'$' | b'*', b"-1") => {
                    (0, 0)
                }
                (b'$' | b'!' | b'=', line) => (0, count(line)?.checked_add(2)?),
                (b'*' | b'~' | b'>', line) => (count(line)?, 0),
                (b'%', line) => (count(line)?.checked_mul(2)?, 0),
                // The reply itself follows the attributes.
                (b'|', line) => (count(line)?.checked_mul(2)?.checked_add(1)?, 0),
                _ => return None,
            };
            let next = self.at.checked_add(end + 2)?.checked_add(text)?;
            if next > bytes.len() {
                if next > self.max_reply {
                    // What is announced as too long is not awaited.
                    self.missing = usize::MAX;
                }
                return Some(false);
            }
            self.at = next;
            self.values = self.values.checked_add(nested)?;
            self.missing = (self.missing - 1).checked_add(nested)?;
            // Here, so that what follows the announcement changes nothing: it may not have arrived.
            if self.values > MAX_VALUES || self.missing > self.max_reply {
                self.missing = usize::MAX;
                return Some(false);
            }
        }
        Some(true)
    }
}

fn no_reply() -> RedisError {
    unexpected("bytes that are no reply")
}

/// Returns the number of values or bytes that a line announces.
fn count(line: &[u8]) -> Option<usize> {
    std::str::from_utf8(line).ok()?.parse().ok()
}

/// Reads an array of few numbers, as the scripts reply, and returns its length in bytes. Others are
/// the general parser's.
fn numbers(bytes: &[u8]) -> Option<(Vec<Value>, usize)> {
    let [b'*', count, b'\r', b'\n', rest @ ..] = bytes else { return None };
    let count = count.wrapping_sub(b'0');
    if !(1..=MAX_NUMBERS).contains(&count) {
        return None;
    }
    let (mut values, mut rest) = (Vec::with_capacity(count.into()), rest);
    for _ in 0..count {
        let (number, after) = number(rest)?;
        values.push(Value::Int(number));
        rest = after;
    }
    Some((values, bytes.len() - rest.len()))
}

/// Reads one number.
fn number(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let rest = bytes.strip_prefix(b":")?;
    let (number, rest) = rest.split_at(rest.iter().position(|byte| *byte == b'\r')?);
    Some((str::from_utf8(number).ok()?.parse().ok()?, rest.strip_prefix(b"\r\n")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replies of every type, and their values by the client's own parser.
    const REPLIES: &[&str] = &[
        "*4\r\n:1\r\n:399\r\n:-12\r\n:1234567890123456\r\n",
        "*1\r\n:0\r\n",
        "*0\r\n",
        "*-1\r\n",
        "*2\r\n:1\r\n$1\r\na\r\n",
        "*1\r\n:9223372036854775807\r\n",
        "*1\r\n:-9223372036854775808\r\n",
        "*10\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
        "+OK\r\n",
        ":7\r\n",
        "$-1\r\n",
        "$4\r\n\r\n\r\n\r\n",
        "$0\r\n\r\n",
        "%1\r\n$1\r\nk\r\n*2\r\n:1\r\n:2\r\n",
        "~2\r\n+a\r\n+b\r\n",
        // A short array before the shortest reply.
        "*1\r\n:1\r\n",
        "_\r\n",
        "#t\r\n",
        ",1.5\r\n",
        "=7\r\ntxt:abc\r\n",
        "*2\r\n*1\r\n*1\r\n:1\r\n*0\r\n",
    ];

    fn value(text: &str) -> Value {
        parse_redis_value(text.as_bytes()).unwrap()
    }

    #[test]
    fn replies_are_read_as_by_the_general_parser_however_their_bytes_arrive() {
        let all = REPLIES.concat();
        for piece in 1..=all.len() {
            let (mut reader, mut read, mut values) = (ReplyReader::new(usize::MAX), 0, Vec::new());
            for arrived in (0..all.len()).step_by(piece).map(|at| (at + piece).min(all.len())) {
                while let Some(frame) = reader.next(&all.as_bytes()[read..arrived]).unwrap() {
                    read += frame.length;
                    values.push(frame.reply.unwrap());
                }
            }
            assert_eq!(values, REPLIES.iter().map(|it| value(it)).collect::<Vec<_>>(), "{piece}");
        }
    }

    #[test]
    fn a_reply_of_too_many_values_ends_before_they_arrive() {
        let next = |text: &str| ReplyReader::new(1 << 20).next(text.as_bytes());
        assert!(next("*99999\r\n").unwrap().is_none());
        for text in ["*100000\r\n", "%50000\r\n", "*1\r\n*99999\r\n"] {
            assert!(next(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_error_is_a_reply_and_a_push_is_none() {
        let text = "-WRONGTYPE other\r\n>2\r\n+invalidate\r\n*0\r\n:1\r\n";
        let (mut reader, mut rest) = (ReplyReader::new(usize::MAX), text.as_bytes());
        let mut frames = Vec::new();
        while let Some(frame) = reader.next(rest).unwrap() {
            rest = &rest[frame.length..];
            frames.push(frame);
        }
        let [error, push, number] = &frames[..] else { panic!("{} frames", frames.len()) };
        assert_eq!(error.reply.as_ref().unwrap_err().code(), Some("WRONGTYPE"));
        assert!(push.is_push && !error.is_push && !number.is_push);
        assert_eq!(number.reply.as_ref().unwrap(), &Value::Int(1));
    }

    #[test]
    fn bytes_of_another_protocol_are_an_error() {
        for text in ["HTTP/1.1 400\r\n", "*x\r\n", "$99999999999999999999\r\n", "\r\n", "%-2\r\n"] {
            assert!(ReplyReader::new(usize::MAX).next(text.as_bytes()).is_err(), "{text}");
        }
    }
}
