//! The property that a key is parsed back into its parts: no two callers share one.

use std::{
    fmt::{self, Write},
    time::Duration,
};

use ratelimit_core::Algorithm;
use sha2::{Digest, Sha256};

use super::{Caller, Key, KeyRef, MAX_PART};
use crate::policy::Policy;

/// The most awkward names. Names are the program's own, so that no input needs to choose them.
const NAMES: [&str; 8] = ["f", "", "/", "a/b", "%2F", "app::{{closure}}::f", "f/%none", "Zoë \n"];

/// A part, before it is written into a key and after it is parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    None,
    Shared,
    /// The mark of an alternative extractor.
    Or,
    /// A text to be written as its digest.
    Secret(String),
    /// The digest of a secret, or of a text longer than [`MAX_PART`].
    Digest(String),
}

/// Asserts the property. The first byte selects the name and the algorithm. Parts follow, separated
/// by 0xff; one of 0xfe alone is absent, and one of 0xfd alone is the shared caller.
pub(crate) fn assert_property(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let choice = usize::from(*choice);
    let name = NAMES[choice % NAMES.len()];
    let algorithm = Algorithm::ALL[choice / NAMES.len() % Algorithm::ALL.len()];
    let parts: Vec<_> = match rest {
        [] => Vec::new(),
        rest => rest.split(|byte| *byte == 0xff).map(part).collect(),
    };

    let policy = policy(algorithm, name);
    let mut caller = Caller::without_parts();
    for part in &parts {
        push(&mut caller, part);
    }
    let key = Key::compose("ratelimit:", KeyRef::new(&policy, caller.parts()));
    assert!(key.as_key_ref() == KeyRef::new(&policy, caller.parts()));
    let written = str::from_utf8(key.as_bytes()).expect("a key is text");
    assert!(!written.contains(is_forbidden), "{written:?}");
    let longest = name.len() * 3 + parts.len() * (MAX_PART + 1);
    assert!(written.len() <= "ratelimit:sliding_counter:".len() + longest, "{written}");

    let parts = parts.into_iter().map(expected).collect();
    assert_eq!(parse(written), Some((algorithm.as_str(), name.to_owned(), parts)));
}

fn policy(algorithm: Algorithm, name: &'static str) -> Policy {
    Policy::new(name, algorithm, Duration::from_secs(1), 1)
}

fn part(bytes: &[u8]) -> Part {
    match bytes {
        [0xfe] => Part::None,
        [0xfd] => Part::Shared,
        [0xfc] => Part::Or,
        [0xfb, text @ ..] => Part::Secret(String::from_utf8_lossy(text).into_owned()),
        text => Part::Text(String::from_utf8_lossy(text).into_owned()),
    }
}

/// Appends a part, and asserts that all ways to write a text make the same one.
fn push(caller: &mut Caller, part: &Part) {
    match part {
        Part::Text(value) => {
            let mut by_piece = caller.clone();
            by_piece.push(&InPieces(value));
            let mut at_once = caller.clone();
            at_once.push_str(value);
            caller.push(value);
            assert!(*caller == by_piece && *caller == at_once, "{value:?}");
        }
        Part::None => caller.push_none(),
        Part::Shared => caller.append(&Caller::shared()),
        Part::Or => caller.append(&Caller::fallback(Caller::without_parts())),
        Part::Secret(value) => {
            let mut by_piece = caller.clone();
            by_piece.append(&Caller::digest(InPieces(value)));
            caller.append(&Caller::digest(value));
            assert!(*caller == by_piece, "{value:?}");
        }
        Part::Digest(_) => unreachable!("no input is a digest"),
    }
}

/// A text that is displayed in pieces of growing length.
struct InPieces<'a>(&'a str);

impl fmt::Display for InPieces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut rest, mut length) = (self.0, 0);
        while !rest.is_empty() {
            let at = rest.char_indices().nth(length).map_or(rest.len(), |(at, _)| at);
            let (piece, after) = rest.split_at(at);
            f.write_str(piece)?;
            (rest, length) = (after, length + 1);
        }
        Ok(())
    }
}

/// Returns `true` for a character that `redis-cli` would quote, or that selects a slot.
fn is_forbidden(character: char) -> bool {
    character.is_ascii_control() || [' ', '{', '}'].contains(&character)
}

/// Returns the parsed form of a part that was written.
fn expected(part: Part) -> Part {
    let (Part::Text(text) | Part::Secret(text)) = &part else { return part };
    let mut escaped = String::new();
    for character in text.chars() {
        if is_forbidden(character) || ['%', '/'].contains(&character) {
            let _ = write!(escaped, "%{:02X}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    if escaped.len() <= MAX_PART && matches!(part, Part::Text(_)) {
        return part;
    }
    let mut digest = String::new();
    for byte in Sha256::digest(escaped) {
        let _ = write!(digest, "{byte:02x}");
    }
    Part::Digest(digest)
}

/// Parses the algorithm, the name and the parts of a key.
fn parse(key: &str) -> Option<(&str, String, Vec<Part>)> {
    let (algorithm, rest) = key.strip_prefix("ratelimit:")?.split_once(':')?;
    let mut pieces = rest.split('/');
    let name = unescape(pieces.next()?)?;
    let part = |piece: &str| match piece {
        "%none" => Some(Part::None),
        "%shared" => Some(Part::Shared),
        "%or" => Some(Part::Or),
        _ => match piece.strip_prefix("%sha256-") {
            Some(digest) => Some(Part::Digest(digest.to_owned())),
            None => unescape(piece).map(Part::Text),
        },
    };
    Some((algorithm, name, pieces.map(part).collect::<Option<_>>()?))
}

fn unescape(mut text: &str) -> Option<String> {
    let mut plain = String::new();
    while let Some((before, after)) = text.split_once('%') {
        let (digits, rest) = after.split_at_checked(2)?;
        plain += before;
        plain.push(u8::from_str_radix(digits, 16).ok()?.into());
        text = rest;
    }
    Some(plain + text)
}
