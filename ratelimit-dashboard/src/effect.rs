//! Where an action takes effect, and when.

use ratelimit_runtime::Override;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::scope::Scope;

/// The begin and the end of an override that has none.
const NEVER: &str = "never";

/// Where an action takes effect, and when.
#[derive(Default, Deserialize)]
pub(super) struct Effect {
    pub(super) scope: Option<Scope>,
    /// A time, or `never` for no begin; as before if none.
    pub(super) from: Option<String>,
    /// A time, or `never`; as before if none.
    pub(super) until: Option<String>,
    /// `true` if the times are also those of what the action leaves as it is.
    #[serde(default)]
    pub(super) ends_whole: bool,
}

impl Effect {
    /// Returns the times that the action changes, in words.
    pub(super) fn changed_times(&self) -> &'static str {
        if self.from.is_some() { "the times are those" } else { "the end is that" }
    }

    pub(super) fn has_times(&self) -> bool {
        self.from.is_some() || self.until.is_some()
    }

    /// Sets the begin and the end of an override that takes the place of another one.
    pub(super) fn time_in_place_of(
        &self,
        before: Option<&Override>,
        fields: &mut Map<String, Value>,
    ) {
        let mut before = fields_of(before);
        for (name, time) in ["from", "until"].into_iter().filter_map(|it| before.remove_entry(it)) {
            fields.entry(name).or_insert(time);
        }
        self.time(fields);
    }

    /// Sets the begin and the end of an override that an operator has chosen.
    pub(super) fn time(&self, fields: &mut Map<String, Value>) {
        for (name, time) in [("from", &self.from), ("until", &self.until)] {
            if let Some(time) = time {
                fields.remove(name);
                fields.extend((time != NEVER).then(|| (name.to_owned(), json!(time))));
            }
        }
    }
}

/// Returns the fields of an override; none without one.
pub(super) fn fields_of(what: Option<&Override>) -> Map<String, Value> {
    match serde_json::to_value(what) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}
