//! The overrides of single callers: how they are written down, and the table that calls look up.
//!
//! A caller is written as in keys, such as `/acme/42`. Under a secret it is a digest in every
//! source, so that no identity is in a document of the fleet. The table is probed by a keyed hash,
//! the tag of a caller; it is part of the digest's text, and so only a hit costs a SHA-256.

#[cfg(test)]
mod tests;

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime},
};

use sha2::{Digest, Sha256};

use super::{Override, applied::AppliedOverride, layer::ALL_LIMITS, shared_table::SharedTable};
use crate::{
    key::{self, Caller},
    policy::PolicyName,
};

/// The start of a caller that is written as its digest. No text of a part is escaped to it.
pub(super) const DIGEST: &str = "/%keyed-";

/// The identities of callers as they are written down, and the clock by which overrides end.
pub(super) struct Identities {
    /// The key of the tags.
    keys: [u64; 2],
    /// The secret of the callers' digests, if they are written as such.
    secret: Option<Box<str>>,
    /// The clock of the server less that of this process, in microseconds.
    ahead: AtomicI64,
}

impl Default for Identities {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Identities {
    /// With a secret, tags are equal in all processes that have it.
    pub(super) fn new(secret: Option<Box<str>>) -> Self {
        let keys = match &secret {
            None => [random(), random()],
            Some(secret) => {
                let digest = Sha256::new().chain_update("tag").chain_update(&**secret).finalize();
                let (words, _) = digest.as_chunks();
                [words[0], words[1]].map(u64::from_be_bytes)
            }
        };
        Self { keys, secret, ahead: AtomicI64::default() }
    }

    /// Returns the tag of a caller's parts.
    fn tag(&self, parts: &[u8]) -> u64 {
        keyed_hash(self.keys, parts)
    }

    /// Returns a caller as it is written down.
    pub(super) fn text(&self, caller: &Caller) -> String {
        let parts = caller.parts();
        match &self.secret {
            Some(secret) if !parts.starts_with(DIGEST.as_bytes()) => {
                format!("{DIGEST}{:016x}-{}", self.tag(parts), key::caller_digest(secret, parts))
            }
            _ => String::from_utf8_lossy(parts).into_owned(),
        }
    }

    /// Returns a caller as it is written down here, from a text of either form; none for a digest
    /// without a secret.
    #[cfg(feature = "overrides")]
    pub(super) fn text_in_document(&self, text: &str) -> Option<String> {
        match (text.starts_with(DIGEST), self.has_secret()) {
            (true, false) => None,
            (false, true) => Some(self.text(&Caller::from_parts(text.as_bytes()))),
            _ => Some(text.to_owned()),
        }
    }

    /// Returns `true` if callers are written as digests.
    pub(super) fn has_secret(&self) -> bool {
        self.secret.is_some()
    }

    /// Returns the tag of a caller that is written down.
    fn tag_of_text(&self, text: &str) -> u64 {
        let digest = text.strip_prefix(DIGEST).and_then(|digest| digest.split('-').next());
        let tag = digest.and_then(|tag| u64::from_str_radix(tag, 16).ok());
        tag.unwrap_or_else(|| self.tag(text.as_bytes()))
    }

    /// Returns `true` if the text is that of these parts, whose tags are equal.
    fn is(&self, text: &str, parts: &[u8]) -> bool {
        match (&self.secret, text.strip_prefix(DIGEST)) {
            (Some(secret), Some(digest)) => {
                digest.rsplit('-').next() == Some(&*key::caller_digest(secret, parts))
            }
            _ => text.as_bytes() == parts,
        }
    }

    /// Returns the time of the server, or that of this process without one.
    pub(super) fn now(&self) -> SystemTime {
        let (now, ahead) = (SystemTime::now(), self.ahead.load(Ordering::Relaxed));
        let difference = Duration::from_micros(ahead.unsigned_abs());
        let shifted =
            if ahead < 0 { now.checked_sub(difference) } else { now.checked_add(difference) };
        shifted.unwrap_or(now)
    }

    /// Sets the time of the server.
    #[cfg(feature = "overrides")]
    pub(super) fn set_server_time(&self, server: SystemTime) {
        let micros = |length: Duration| i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
        let ahead = match server.duration_since(SystemTime::now()) {
            // Rounded up: what begins at the time of the server has begun.
            Ok(ahead) => micros(ahead + Duration::from_nanos(999)),
            Err(behind) => -micros(behind.duration()),
        };
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    /// Returns `true` if a part of the override is in effect. Most have no times, and need no
    /// clock.
    pub(super) fn is_in_effect(&self, what: &Override) -> bool {
        what.turns().next().is_none() || what.at(self.now()).is_some()
    }
}

/// The overrides of callers in all sources.
#[derive(Clone, Default)]
pub(super) struct CallerTable {
    pub(super) identities: Arc<Identities>,
    /// By the hash of the limit's name and the tag of the caller.
    entries: SharedTable<CallerEntry>,
    count: usize,
    /// The number of overrides of all limits.
    of_all_limits: usize,
}

/// The overrides of one caller of one limit.
struct CallerEntry {
    limit: Box<str>,
    caller: Box<str>,
    /// Those of the sources that have one, the highest first, and of each source the last part
    /// first.
    overrides: Vec<AppliedOverride<1>>,
}

impl CallerTable {
    pub(super) fn new(identities: Arc<Identities>) -> Self {
        Self { identities, ..Self::default() }
    }

    /// Replaces the overrides of a caller by those of the sources, the highest first.
    pub(super) fn replace<'a>(
        &mut self,
        limit: &str,
        caller: &str,
        sources: impl Iterator<Item = &'a Override>,
    ) {
        // Of one source, the last part in effect decides.
        let parts = sources.flat_map(|what| what.parts().iter().rev());
        let overrides: Vec<_> = parts.cloned().map(AppliedOverride::new).collect();
        let hash = PolicyName::hash_of(limit) ^ self.identities.tag_of_text(caller);
        let is_known = |it: &CallerEntry| *it.limit == *limit && *it.caller == *caller;
        let is_overridden = !overrides.is_empty();
        let new = || CallerEntry { limit: limit.into(), caller: caller.into(), overrides };
        let was_overridden = self.entries.replace(hash, is_known, is_overridden.then(new));
        let renewed = |count| count + usize::from(is_overridden) - usize::from(was_overridden);
        self.count = renewed(self.count);
        if limit == ALL_LIMITS {
            self.of_all_limits = renewed(self.of_all_limits);
        }
    }

    pub(super) fn has_all_limits(&self) -> bool {
        self.of_all_limits > 0
    }

    /// Returns the overrides of a caller that are in effect: those of these names, then that of all
    /// limits.
    pub(super) fn find(
        &self,
        names: [Option<PolicyName>; 2],
        caller: &Caller,
    ) -> [Option<&AppliedOverride<1>>; 3] {
        self.select(names, caller, |what| self.identities.is_in_effect(what))
    }

    /// Returns the next time after `now` at which an override of a caller begins or ends.
    pub(super) fn next_turn(
        &self,
        names: [Option<PolicyName>; 2],
        caller: &Caller,
        now: SystemTime,
    ) -> Option<SystemTime> {
        let mut next = None;
        // None is selected, so that each is looked at.
        self.select(names, caller, |what| {
            next = what.turns().filter(|turn| now < *turn).chain(next).min();
            false
        });
        next
    }

    /// Returns the overrides of a caller that are selected first: those of these names, then that
    /// of all limits.
    #[inline]
    pub(super) fn select(
        &self,
        names: [Option<PolicyName>; 2],
        caller: &Caller,
        mut is_selected: impl FnMut(&Override) -> bool,
    ) -> [Option<&AppliedOverride<1>>; 3] {
        if self.count == 0 {
            return [None; 3];
        }
        let parts = caller.parts();
        let tag = self.identities.tag(parts);
        let mut find = |hash: u64, limit: &str| {
            let is_it =
                |it: &CallerEntry| *it.limit == *limit && self.identities.is(&it.caller, parts);
            let entry = self.entries.find(hash ^ tag, is_it)?;
            entry.overrides.iter().find(|it| is_selected(it.what()))
        };
        let mut of = |name: Option<PolicyName>| name.and_then(|it| find(it.hash(), it.text()));
        // One by one: a `map` of both takes more instructions.
        let (of_plan, of_limit) = (of(names[0]), of(names[1]));
        let all_limits = || find(PolicyName::hash_of(ALL_LIMITS), ALL_LIMITS);
        [of_plan, of_limit, self.has_all_limits().then(all_limits).flatten()]
    }
}

/// Returns the place of a caller among 100, the same in all processes: it is in every larger share,
/// in percent.
pub(crate) fn place_in_share(caller: &Caller) -> u8 {
    (keyed_hash([0; 2], caller.parts()) % 100) as u8
}

#[expect(deprecated, reason = "std has no other hash that is keyed and the same everywhere")]
fn keyed_hash([first, second]: [u64; 2], parts: &[u8]) -> u64 {
    let mut hasher = std::hash::SipHasher::new_with_keys(first, second);
    hasher.write(parts);
    hasher.finish()
}

/// Returns a number that no other process has.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(0)
}
