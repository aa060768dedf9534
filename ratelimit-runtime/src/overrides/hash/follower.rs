//! Following the hashes of overrides by polling.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use tokio::{sync::oneshot, time::Instant};

use super::{
    FORBIDDEN_PAUSE, FleetHash, HashState,
    fields::{HashKind, REVISION},
    status::Reporter,
};
use crate::{
    error::{Replied, UnavailableReason},
    follow::{Logged, POLL_INTERVAL, next_poll},
    overrides::{OverrideError, OverrideProblem, OverrideSource, Overrides, Shared},
    redis::HashContent,
    registry,
};

/// The time after which callers are read although their revision is the same: `redis-cli` writes
/// none.
const UNREVISED: Duration = Duration::from_secs(30);

/// Polls the hashes until the overrides are dropped.
pub(super) async fn follow(overrides: Weak<Shared>, first_poll: oneshot::Sender<()>) {
    let (mut limits, mut callers) = (HashFollower::default(), HashFollower::default());
    let mut reporter = Reporter::default();
    let (mut first_poll, mut next) = (Some(first_poll), overrides.upgrade());
    while let Some(shared) = next {
        let overrides = Overrides::of(&shared);
        let Ok(hashes) = overrides.hashes() else { return };
        // A Redis that does not answer is asked once. The hash of limits comes with the time.
        let is_answered = limits.poll(&hashes.limits, &overrides).await;
        if is_answered {
            callers.poll(&hashes.callers, &overrides).await;
        }
        if let Some(first_poll) = first_poll.take() {
            let _ = first_poll.send(());
        }
        if is_answered {
            reporter.poll(hashes, &overrides).await;
        }
        drop(overrides);
        let target = Arc::downgrade(&shared);
        drop(shared);
        next = next_poll(&target, POLL_INTERVAL).await;
    }
}

/// One process's view of a hash.
#[derive(Default)]
struct HashFollower {
    /// The fields that are in effect. The same fields are not validated again.
    fields: Vec<(String, String)>,
    /// The connection over which these fields were read.
    read_over: Option<(String, u64)>,
    /// `true` while Redis has lost the hash.
    is_lost: bool,
    /// The errors of each invalid field, logged once until the field is valid, and the last one.
    refused: BTreeMap<String, (Logged, Option<OverrideError>)>,
    /// The reasons why Redis did not answer, logged once until it does.
    unreachable: Logged,
    /// The revision of the fields, and when they were read.
    read: Option<(Option<String>, Instant)>,
    /// The time before which the hash is not polled again.
    pause: Option<Instant>,
}

impl HashFollower {
    /// Applies the hash. Returns `false` if Redis did not answer.
    async fn poll(&mut self, hash: &FleetHash, overrides: &Overrides) -> bool {
        if self.pause.is_some_and(|until| Instant::now() < until) {
            return true;
        }
        let state = match self.read_if_changed(hash, overrides).await {
            Ok(None) => return true,
            Ok(Some(content)) => {
                self.unreachable = Logged::default();
                self.on_content(content, hash, overrides)
            }
            Err(reason) => {
                self.on_unreachable(reason, &hash.key);
                let is_forbidden = reason == UnavailableReason::NotPermitted;
                self.pause = is_forbidden.then(|| Instant::now() + FORBIDDEN_PAUSE);
                HashState::Unreadable(reason)
            }
        };
        *hash.state.lock() = state;
        overrides.report_problems();
        !matches!(state, HashState::Unreadable(reason) if reason.is_silence())
    }

    /// Returns the fields, unless those of callers are as they were.
    async fn read_if_changed(
        &mut self,
        hash: &FleetHash,
        overrides: &Overrides,
    ) -> Replied<Option<HashContent>> {
        let read = || hash.hash.fields(hash.kind.max_fields());
        if hash.kind == HashKind::Limits {
            // Overrides end by this clock: it is read before the first of them.
            overrides.set_server_time(hash.hash.time().await?);
            return read().await.map(Some);
        }
        let revision = hash.hash.field(REVISION).await?;
        let now = Instant::now();
        let is_unchanged = self.read.as_ref().is_some_and(|(before, at)| {
            *before == revision && now - *at < UNREVISED && self.unreachable.is_empty()
        });
        if is_unchanged {
            return Ok(None);
        }
        let content = read().await?;
        self.read = Some((revision, now));
        Ok(Some(content))
    }

    fn on_unreachable(&mut self, reason: UnavailableReason, key: &str) {
        if self.unreachable.is_new(&reason) {
            let advice = reason.advice();
            tracing::warn!(key, %reason, advice, "overrides on Redis unreadable; previous ones stay in effect");
        }
    }

    fn on_content(
        &mut self,
        content: HashContent,
        hash: &FleetHash,
        overrides: &Overrides,
    ) -> HashState {
        if self.is_loss(&content) {
            if !mem::replace(&mut self.is_lost, true) {
                let problem = OverrideProblem::Lost { key: hash.key.clone() };
                tracing::warn!(%problem, "overrides on Redis lost; previous ones stay in effect");
            }
            return HashState::Lost;
        }
        let HashContent { mut fields, read_over } = content;
        if hash.kind == HashKind::Callers {
            fields.retain(|(field, _)| field != REVISION);
        }
        (self.read_over, self.is_lost) = (read_over, false);
        self.apply(fields, hash, overrides);
        HashState::Read
    }

    /// Returns `true` if Redis has lost the hash. A revision without overrides proves that it has
    /// not. A lost one stays lost, also over the connection of before.
    fn is_loss(&self, content: &HashContent) -> bool {
        let is_new_connection = self.is_lost || content.read_over != self.read_over;
        content.fields.is_empty() && !self.fields.is_empty() && is_new_connection
    }

    /// Applies the fields that have changed: there may be thousands. An invalid one leaves its
    /// previous override in effect.
    fn apply(&mut self, fields: Vec<(String, String)>, hash: &FleetHash, overrides: &Overrides) {
        if fields == self.fields {
            return;
        }
        let (kind, registered) = (hash.kind, registry::policies());
        let mut before: HashMap<String, String> = mem::take(&mut self.fields).into_iter().collect();
        let mut changes = Vec::new();
        for (field, value) in &fields {
            if before.remove(field).as_ref() == Some(value) {
                continue;
            }
            let parsed = kind.parse(&registered, field, value, overrides);
            let error = match parsed {
                Ok(change) => {
                    self.refused.remove(field);
                    changes.push(change);
                    continue;
                }
                Err(error) => error.at(&hash.key),
            };
            let (logged, last) = self.refused.entry(field.clone()).or_default();
            if logged.is_new(&error) {
                tracing::warn!(%error, "override refused; the previous one stays in effect");
            }
            *last = Some(error);
        }
        // Under a secret, two fields may be of one caller: the end of one leaves the override of
        // the other.
        let has_twins = !before.is_empty() && overrides.shared.identities.has_secret();
        let mut twins = HashMap::new();
        for field in fields.iter().filter(|_| has_twins) {
            twins.extend(kind.place_of(&field.0, overrides).ok().map(|place| (place, field)));
        }
        // What is left of those before is gone.
        for field in before.into_keys() {
            self.refused.remove(&field);
            let Ok(place) = kind.place_of(&field, overrides) else { continue };
            let left = twins
                .get(&place)
                .and_then(|(field, value)| kind.parse(&registered, field, value, overrides).ok());
            changes.push(left.unwrap_or((place, None)));
        }
        self.fields = fields;
        overrides.change(OverrideSource::Redis, |layer| {
            for (place, what) in changes {
                layer.set(place, what);
            }
        });
        let errors = self.refused.values().filter_map(|(_, error)| error.clone()).collect();
        overrides.reject(OverrideSource::Redis, kind == HashKind::Callers, errors);
    }
}

impl Overrides {
    /// Sets the time of the limiter's Redis.
    pub(in crate::overrides) fn set_server_time(&self, time: SystemTime) {
        self.shared.identities.set_server_time(time);
        let now = self.shared.identities.now();
        if self.shared.layers.lock().iter().any(|layer| layer.has_turned(now)) {
            self.follow_clock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_that_is_lost_stays_so_over_the_connection_of_before() {
        let field = |name: &str| vec![(name.to_owned(), "off".to_owned())];
        let read = |fields, number| {
            let read_over = Some(("server".to_owned(), number));
            HashContent { fields, read_over }
        };
        let over_first = HashFollower {
            fields: field("limit"),
            read_over: read(Vec::new(), 1).read_over,
            ..HashFollower::default()
        };
        let losses = |follower: &HashFollower| {
            [read(Vec::new(), 1), read(Vec::new(), 2), read(field(REVISION), 2)]
                .map(|content| follower.is_loss(&content))
        };
        assert_eq!(losses(&over_first), [false, true, false]);
        let lost = HashFollower { is_lost: true, ..over_first };
        assert_eq!(losses(&lost), [true, true, false]);
        assert_eq!(losses(&HashFollower::default()), [false; 3]);
    }
}
