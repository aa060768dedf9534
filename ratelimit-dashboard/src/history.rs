//! The last changes of overrides and resets as the page shows them, and the undoing of a change.

use std::{
    cmp::Reverse,
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use ratelimit_runtime::{
    Override,
    overrides::{OverrideChange, OverrideSource},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    ActionError, Answer, Dashboard,
    access::Viewer,
    acting::Action,
    actions::answer,
    samples::millis,
    scope::{ALL_LIMITS, Scope},
};

/// The number of changes that are shown.
const SHOWN: usize = 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Undo {
    /// The number of the change.
    number: u64,
}

/// The last resets of callers from this page, the latest first.
#[derive(Default)]
pub(super) struct Resets(Mutex<VecDeque<Reset>>);

struct Reset {
    at: SystemTime,
    operator: Option<String>,
    limit: &'static str,
}

impl Resets {
    pub(super) fn record(&self, viewer: &Viewer, limit: &'static str) {
        let operator = viewer.name.as_deref().map(str::to_owned);
        let mut resets = self.list();
        resets.push_front(Reset { at: SystemTime::now(), operator, limit });
        resets.truncate(SHOWN);
    }

    fn list(&self) -> MutexGuard<'_, VecDeque<Reset>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dashboard {
    /// Returns the last changes of overrides and resets, the latest first. Callers are not part of
    /// them.
    pub(super) fn changes(&self) -> Vec<Value> {
        let history = self.limiter.overrides().history();
        let view = |(at, change): (usize, &OverrideChange)| {
            let is_later = history[..at].iter().any(|later| is_same(later, change));
            let can_be_undone = Scope::of(change.source).is_some() && !has_ended(change);
            let view = json!({
                "number": change.number,
                // In milliseconds since 1970.
                "at": millis(change.at),
                "source": change.source.to_string(),
                "operator": change.operator.as_deref(),
                "limit": change.limit,
                "is_of_caller": change.caller.is_some(),
                "before": change.before,
                "after": change.after,
                // `true` if an operator can undo it: it is the last one of its kind, by the program
                // or on Redis.
                "is_last": can_be_undone && !is_later,
                // `true` if undoing it changes the whole fleet.
                "is_fleet": change.source == OverrideSource::Redis,
            });
            (change.at, view)
        };
        let reset = |reset: &Reset| {
            let view = json!({
                // It cannot be undone.
                "number": 0,
                "at": millis(reset.at),
                "source": "reset",
                "operator": reset.operator,
                "limit": reset.limit,
                "is_of_caller": true,
                "before": null,
                "after": null,
                "is_last": false,
                "is_fleet": !self.limiter.is_in_memory(),
            });
            (reset.at, view)
        };
        let mut changes: Vec<_> = history.iter().enumerate().take(SHOWN).map(view).collect();
        changes.extend(self.resets.list().iter().map(reset));
        changes.sort_by_key(|(at, _)| Reverse(millis(*at)));
        changes.into_iter().take(SHOWN).map(|(_, view)| view).collect()
    }
}

/// Returns `true` if the override has ended at its own time.
fn has_ended(change: &OverrideChange) -> bool {
    let end = change.before.as_ref().and_then(Override::end);
    change.after.is_none() && end.is_some_and(|end| end <= change.at)
}

/// Returns `true` if both are changes of the same override.
fn is_same(one: &OverrideChange, other: &OverrideChange) -> bool {
    one.source == other.source && one.limit == other.limit && one.caller == other.caller
}

pub(super) async fn undo(action: Action<Undo>) -> Answer {
    let Action { dashboard, viewer, body: Undo { number } } = action;
    // The same number is another change there.
    viewer.means_this_process()?;
    let _acting = dashboard.acting.lock().await;
    let history = dashboard.limiter.overrides().history();
    let place = history.iter().position(|change| change.number == number);
    let place = place.ok_or_else(|| ActionError::conflict("this change is not known any more"))?;
    let change = &history[place];
    let Some(scope) = Scope::of(change.source) else {
        return Err(ActionError::conflict("this change is undone where it was written"));
    };
    if has_ended(change) {
        return Err(ActionError::conflict("the override has ended at its own time"));
    }
    let acting = dashboard.act_as(&viewer, Some(scope))?;
    let changed = "it has changed since; undo the latest change first";
    if history[..place].iter().any(|later| is_same(later, change)) {
        return Err(ActionError::conflict(changed));
    }
    // Another process may have written since the latest poll.
    if acting.read(change.place()).await? != change.after {
        return Err(ActionError::conflict(changed));
    }
    acting.write(change.place(), change.before.clone(), "undo").await?;
    let is_all = change.limit == ALL_LIMITS;
    let subject = if is_all { "all limits" } else { &*change.limit };
    Ok(answer(&format!("Undone for {subject}: {}.", acting.place())))
}
