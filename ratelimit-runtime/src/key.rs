//! Keys: readable and injective. No caller can choose its slot or another caller's key.
//!
//! Floor 2: pure, imports `policy`. Limiter and backends may import it, and `caller` for its parts.
//!
//! A key is `<prefix><kind of state>:<name>/<part>/<part>..`. The name and every part are escaped,
//! so that a `/` always separates. `("a/b", "c")` and `("a", "b/c")` are two keys, and an empty
//! part counts. Braces are escaped too, because they select the slot in a Redis Cluster.
//!
//! After `%` there are two upper-case hex digits, or a word that no text escapes to:
//!
//! - `%none` for an absent part,
//! - `%shared` for calls without a caller,
//! - `%or` before the caller of an alternative extractor,
//! - `%caller-` and a number before so many parts, which are those of one caller,
//! - `%sha256-..` for a part that is secret, or longer than 128 bytes.

mod bytes;
mod caller;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod hash;
mod stored_caller;
mod words;

use std::fmt::{self, Write};

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

pub use self::caller::{Caller, IntoCaller};
pub(crate) use self::{
    bytes::InlineBytes,
    hash::{KeyHasher, Lookup},
    stored_caller::StoredCaller,
    words::CallerBytes,
};
use crate::policy::{Policy, PolicyName, StateKind};

/// The maximum length of an escaped part in bytes; a longer one is replaced by its digest.
const MAX_PART: usize = 128;

/// A key as the parts that it consists of, for a store that needs no text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyRef<'a> {
    pub(crate) state: StateKind,
    pub(crate) name: PolicyName,
    /// The escaped parts of the caller.
    pub(crate) caller: CallerBytes<'a>,
}

impl<'a> KeyRef<'a> {
    #[inline]
    pub(crate) fn new(policy: &Policy, caller: impl Into<CallerBytes<'a>>) -> Self {
        let (state, name) = (policy.state(), policy.full_name());
        Self { state, name, caller: caller.into() }
    }
}

/// The text under which a store counts one caller's calls under one policy.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    text: SmallVec<[u8; 128]>,
    state: StateKind,
    pub(crate) name: PolicyName,
    /// The index in the text at which the name starts.
    start: usize,
    /// The index in the text at which the caller's parts start.
    caller: usize,
}

impl Key {
    pub(crate) fn compose(prefix: &str, key: KeyRef<'_>) -> Self {
        let KeyRef { state, name, caller } = key;
        let mut text = SmallVec::new();
        text.extend_from_slice(prefix.as_bytes());
        text.extend_from_slice(state.as_str().as_bytes());
        text.push(b':');
        let start = text.len();
        escape(name.text().as_bytes(), |piece| text.extend_from_slice(piece));
        let caller_at = text.len();
        caller.with_bytes(|caller| text.extend_from_slice(caller));
        Self { text, state, name, start, caller: caller_at }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text
    }

    /// Returns the key of further state of the caller, `<prefix><algorithm>:{<key>}:<suffix>`. The
    /// braces put it into the slot of this key, which has none itself. A user that may use this key
    /// may use the other: both start alike.
    pub(crate) fn companion(&self, suffix: &str) -> Vec<u8> {
        [&self.text[..self.start], b"{", self.as_bytes(), b"}:", suffix.as_bytes()].concat()
    }

    pub(crate) fn as_key_ref(&self) -> KeyRef<'_> {
        let caller = self.text[self.caller..].into();
        KeyRef { state: self.state, name: self.name, caller }
    }
}

/// FNV-1a, of 64 bits: the same in all builds and on all machines.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn request_id(self) -> u64 {
        // The last byte reaches few of the bits that are kept.
        (self.0 ^ self.0 >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 13
    }
}

impl Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        Ok(())
    }
}

/// Returns a hash of a request id, below 2^51: exact in a double, with room to count on. It need
/// not resist a client that chooses ids, because such a client could repeat one.
pub(crate) fn hash_request_id(value: &(impl fmt::Display + ?Sized)) -> u64 {
    let mut hash = Fnv::new();
    // A `Display` that fails has written the id already.
    let _ = write!(hash, "{value}");
    hash.request_id()
}

/// Returns the hash of a request id that is this text.
#[inline]
pub(crate) fn hash_text(text: &str) -> u64 {
    let mut hash = Fnv::new();
    let _ = hash.write_str(text);
    hash.request_id()
}

/// Returns a keyed digest of the caller for logs: 16 hex digits.
pub(crate) fn caller_digest(secret: &str, caller: &[u8]) -> String {
    // The length separates the end of the secret from the start of the caller.
    let digest = Sha256::new()
        .chain_update((secret.len() as u64).to_be_bytes())
        .chain_update(secret)
        .chain_update(caller)
        .finalize();
    digest[..8].iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Returns a policy's name as keys contain it.
#[cfg(feature = "overrides")]
pub(crate) fn escaped_name(name: &str) -> String {
    let mut text = Vec::with_capacity(name.len());
    escape(name.as_bytes(), |piece| text.extend_from_slice(piece));
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the policy's name that keys contain so, if it is one.
#[cfg(feature = "overrides")]
pub(crate) fn unescaped_name(text: &str) -> Option<String> {
    let name = percent_encoding::percent_decode_str(text).decode_utf8().ok()?.into_owned();
    (!name.is_empty() && escaped_name(&name) == text).then_some(name)
}

/// Returns `true` if keys may contain a caller so.
#[cfg(feature = "overrides")]
pub(crate) fn is_caller(text: &str) -> bool {
    text.starts_with('/')
        && text.bytes().all(|byte| matches!(byte, b'/' | b'%') || !needs_escape(byte))
}

/// Returns `true` for ASCII that a key cannot contain as it is.
fn needs_escape(byte: u8) -> bool {
    NEEDS_ESCAPE[usize::from(byte)]
}

static NEEDS_ESCAPE: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < 0x80 {
        table[byte as usize] = matches!(byte, b'%' | b'/' | b'{' | b'}' | 0..=b' ' | 0x7f);
        byte += 1;
    }
    table
};

/// Writes the escaped text in pieces.
fn escape(mut text: &[u8], mut write: impl FnMut(&[u8])) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    while let Some(at) = text.iter().position(|byte| needs_escape(*byte)) {
        write(&text[..at]);
        let (high, low) = (HEX[usize::from(text[at] >> 4)], HEX[usize::from(text[at] & 0xf)]);
        write(&[b'%', high, low]);
        text = &text[at + 1..];
    }
    write(text);
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{HashMap, HashSet},
        time::Duration,
    };

    use super::*;

    fn key(name: &'static str, parts: &[&str]) -> String {
        let caller = parts.iter().fold(Caller::without_parts(), super::caller::Caller::and);
        let policy = Policy::sliding_window(name, Duration::from_secs(1), 1);
        let key = Key::compose("ratelimit:", KeyRef::new(&policy, caller.parts()));
        assert!(key.as_key_ref() == KeyRef::new(&policy, caller.parts()));
        String::from_utf8(key.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn a_key_is_readable() {
        assert_eq!(
            key("app::mail::send", &["acme", "user-42"]),
            "ratelimit:sliding_window:app::mail::send/acme/user-42"
        );
        assert_eq!(key("f", &["2001:db8::1"]), "ratelimit:sliding_window:f/2001:db8::1");
        assert_eq!(key("f", &["Zoë 王"]), "ratelimit:sliding_window:f/Zoë%20王");
    }

    #[test]
    fn further_state_starts_alike_and_names_the_key_as_its_slot() {
        let policy = Policy::fixed_window("f", Duration::from_secs(1), 1);
        let key = Key::compose("ratelimit:", KeyRef::new(&policy, &b"/a"[..]));
        let further = b"ratelimit:fixed_window:{ratelimit:fixed_window:f/a}:s";
        assert_eq!(key.companion("s"), further);
    }

    #[test]
    fn different_parts_give_different_keys() {
        let long = "x".repeat(200);
        let longer = "x".repeat(201);
        let mut seen = HashMap::new();
        for (name, parts) in [
            ("f", vec![]),
            ("f", vec![""]),
            ("f", vec!["", ""]),
            ("f", vec!["a:b", "c"]),
            ("f", vec!["a", "b:c"]),
            ("f", vec!["a/b", "c"]),
            ("f", vec!["a", "b/c"]),
            ("f", vec!["a", "b", "c"]),
            ("f/a", vec!["b", "c"]),
            ("f", vec!["a%2Fb", "c"]),
            ("f", vec!["%none"]),
            ("f", vec!["none"]),
            ("f", vec!["%shared"]),
            ("f", vec!["{x}"]),
            ("f", vec!["x"]),
            ("f", vec!["a\r\nb"]),
            ("f", vec!["a\0b"]),
            ("f", vec![long.as_str()]),
            ("f", vec![longer.as_str()]),
            ("f", vec![long.as_str(), long.as_str()]),
        ] {
            if let Some(other) = seen.insert(key(name, &parts), (name, parts.clone())) {
                panic!("{other:?} and {:?} share a key", (name, parts));
            }
        }
    }

    #[test]
    fn digests_that_differ_are_exact_in_a_double_with_room_to_count_on() {
        let numbers = (0..100_000).map(|number| hash_request_id(&number));
        let names = (0..100_000).map(|number| hash_request_id(&format_args!("job-{number:08x}")));
        let digests: HashSet<u64> = numbers.chain(names).collect();
        assert_eq!(digests.len(), 200_000);
        assert!(digests.iter().all(|digest| *digest < 1 << 51));
        // Computed by another implementation: all builds find the charges of each other.
        assert_eq!(hash_request_id(&"job-7"), 0x5_8cc3_6b5e_1a70);
        // However many pieces the text is written in.
        assert_eq!(hash_request_id(&format_args!("{}-{}", "job", 7)), 0x5_8cc3_6b5e_1a70);
    }

    #[test]
    fn a_digest_is_that_of_the_text_and_no_text_equals_it() {
        let bytes = |caller: Caller| String::from_utf8(caller.parts().to_vec()).unwrap();
        let digest = |text: &str| bytes(Caller::digest(text));
        // printf '' | sha256sum, printf 'a' | sha256sum
        assert_eq!(
            digest(""),
            "/%sha256-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(
            digest("a"),
            "/%sha256-ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
        );
        assert_ne!(bytes(Caller::from(&digest("a")[1..])), digest("a"));
        // One text has one digest, also where it is too long to be written out.
        let long = "x".repeat(MAX_PART + 1);
        assert_eq!(bytes(Caller::from(&long)), digest(&long));
    }

    #[test]
    fn no_brace_of_a_caller_or_a_name_reaches_the_key() {
        let key = key("app::{{closure}}::f", &["}{tag}", "{}"]);
        assert!(!key.contains(['{', '}']), "{key}");
    }

    #[test]
    fn a_long_part_is_its_digest_and_the_limit_is_exact() {
        let written = key("f", &[&"x".repeat(MAX_PART)]);
        assert!(written.ends_with(&"x".repeat(MAX_PART)));
        let digest = key("f", &[&"x".repeat(MAX_PART + 1)]);
        // printf 'x%.0s' $(seq 129) | sha256sum
        assert!(
            digest.ends_with(
                "/%sha256-0ec9eb33e74510bcdd1f2ea55206e82f21649c5c2becbf2b433eb475b34c01bd"
            ),
            "{digest}"
        );
        assert_eq!(
            key("f", &[&"/".repeat(1 << 20)]).len(),
            "ratelimit:sliding_window:f/".len() + 72
        );
    }
}
