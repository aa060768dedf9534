//! The text form of overrides: documents in TOML or JSON, and single overrides in JSON.
//!
//! ```toml
//! enforcement = "on"                # of all limits
//!
//! [limits."app::reply"]
//! period = "30s"
//! threshold = 10
//!
//! [limits]
//! search = "dry_run"                # short for { enforcement = "dry_run" }
//!
//! # A list: each for its own time. The last one in effect decides.
//! mail = [{ threshold = 20 }, { threshold = 500, from = 2026-11-27T15:00:00Z, until = 2026-11-27T19:00:00Z }]
//!
//! [[callers]]
//! limit = "search"                  # all limits without it
//! caller = ["acme", "42"]           # or one text
//! threshold = 500
//! until = 2026-11-27T18:00:00Z
//! ```

#[cfg(test)]
mod tests;
mod values;

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{
        self, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};

use self::values::{AnswerText, CallerParts, PeriodText, ScaleNumber, ShareText, TimeText, Whole};
use super::{
    Enforcement, Fault, Layer, Override, OverrideError,
    callers::Identities,
    layer::{ALL_LIMITS, WrittenPlace},
};
use crate::policy::Tier;

/// Parses a document: JSON if it starts with a brace, else TOML. Callers become those that
/// `identities` writes.
pub(super) fn parse(text: &str, identities: &Identities) -> Result<Layer, Fault> {
    // No document of TOML begins with a brace.
    let document: Document = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(unreadable)?
    } else {
        toml::from_str(text).map_err(|error| unreadable(placed(text, &error)))?
    };
    let Document { enforcement, limits, callers } = document;
    if enforcement.is_some() && limits.contains_key(ALL_LIMITS) {
        return Err(Fault::new("`enforcement` of the document is that of the limit `*`; give one"));
    }
    let mut layer = Layer::default();
    for (limit, what) in limits {
        layer.set(WrittenPlace::of_limit(limit), Some(what));
    }
    if let Some(enforcement) = enforcement {
        layer.enforce(enforcement);
    }
    for CallerItem { limit, caller: CallerParts(caller), what } in callers {
        let limit = limit.unwrap_or_else(|| ALL_LIMITS.to_owned());
        let place = WrittenPlace { limit, caller: Some(identities.text(&caller)) };
        let what: Override = what.into();
        // Several items of one caller are those of several times.
        let what = match layer.get(&place) {
            Some(before) => before.and(&what),
            None => what,
        };
        layer.set(place, Some(what));
    }
    Ok(layer)
}

/// Parses one override: a JSON object, a list of such, or the word of an enforcement.
pub(super) fn parse_one(text: &str) -> Result<Override, Fault> {
    if let Some(enforcement) = Enforcement::parse(text.trim()) {
        return Ok(Override::new().enforcement(enforcement));
    }
    if !text.trim_start().starts_with(['{', '[']) {
        return Err(Fault::new(format!(
            "`{}` is none of on, dry_run and off, and no object such as {{\"threshold\": 10}}",
            text.trim()
        )));
    }
    serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        // A value of one line needs no place.
        let end = if text.contains('\n') { None } else { message.rfind(" at line ") };
        unreadable(&message[..end.unwrap_or(message.len())])
    })
}

/// Parses a JSON object such as `{"threshold": 10}`, a list of such, or the word of an enforcement.
impl FromStr for Override {
    type Err = OverrideError;

    fn from_str(text: &str) -> Result<Self, OverrideError> {
        Ok(parse_one(text)?)
    }
}

/// Writes the JSON that is parsed as this override: an object, or a list of those for several
/// times. Periods are rounded up to a millisecond.
impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}

/// Returns the message of a TOML error with its place, on one line. The error's own text is several
/// lines, with an excerpt of the document.
fn placed(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let (line, start) =
        (before.matches('\n').count() + 1, before.rfind('\n').map_or(0, |at| at + 1));
    let column = before[start..].chars().count() + 1;
    let why = error.message().lines().collect::<Vec<_>>().join(", ");
    format!("TOML parse error at line {line}, column {column}: {why}")
}

fn unreadable(error: impl fmt::Display) -> Fault {
    Fault::new(error.to_string().trim_end().to_owned())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    enforcement: Option<Enforcement>,
    #[serde(default)]
    limits: BTreeMap<String, Override>,
    #[serde(default)]
    callers: Vec<CallerItem>,
}

/// The table of the override of one caller.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallerItem {
    limit: Option<String>,
    caller: CallerParts,
    #[serde(flatten)]
    what: OverrideTable,
}

/// The table of one override.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct OverrideTable {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enforcement: Option<Enforcement>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enforce: Option<ShareText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    period: Option<PeriodText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    threshold: Option<Whole>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tiers: Vec<TierTable>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst: Option<Whole>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    concurrency: Option<Whole>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    candidate: Option<Box<Override>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<TimeText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale: Option<ScaleNumber>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_store_error: Option<AnswerText>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    deny: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<TimeText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<TimeText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct TierTable {
    period: PeriodText,
    threshold: Whole,
}

impl From<OverrideTable> for Override {
    fn from(table: OverrideTable) -> Self {
        let OverrideTable { enforcement, threshold, burst, concurrency, deny, .. } = table;
        let OverrideTable { period, tiers, candidate, since, scale, from, until, by, .. } = table;
        let period = period.map(|PeriodText(period)| period);
        let tiers = tiers.into_iter().map(|it| Tier::new(it.period.0, it.threshold.0)).collect();
        let [threshold, burst, concurrency] =
            [threshold, burst, concurrency].map(|it| it.map(|Whole(number)| number));
        let [since, from, until] = [since, from, until].map(|it| it.map(|TimeText(time)| time));
        let scale_in_thousandths = scale.map(|ScaleNumber(scale)| scale);
        let numbers = Self { period, threshold, tiers, burst, concurrency, ..Self::new() };
        let numbers = Self { candidate, since, scale_in_thousandths, ..numbers };
        let enforce = table.enforce.map(|ShareText(percent)| percent);
        let on_store_error = table.on_store_error.map(|AnswerText(answer)| answer);
        Self { enforcement, enforce, on_store_error, deny, from, until, by, ..numbers }
    }
}

impl Serialize for Override {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.windows.is_empty() {
            return self.windows.serialize(serializer);
        }
        let Self { enforcement, candidate, since, deny, from, until, by, .. } = self;
        let Self { period, threshold, tiers, burst, concurrency, .. } = self;
        let tier = |tier: &Tier| TierTable {
            period: PeriodText(tier.period()),
            threshold: Whole(tier.threshold()),
        };
        let table = OverrideTable {
            enforcement: *enforcement,
            enforce: self.enforce.map(ShareText),
            period: period.map(PeriodText),
            threshold: threshold.map(Whole),
            tiers: tiers.iter().map(tier).collect(),
            burst: burst.map(Whole),
            concurrency: concurrency.map(Whole),
            candidate: candidate.clone(),
            since: since.map(TimeText),
            scale: self.scale_in_thousandths.map(ScaleNumber),
            on_store_error: self.on_store_error.map(AnswerText),
            deny: *deny,
            from: from.map(TimeText),
            until: until.map(TimeText),
            by: by.clone(),
        };
        table.serialize(serializer)
    }
}

/// A table, a list of such, or the word of an enforcement.
impl<'de> Deserialize<'de> for Override {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TableOrWord;

        impl<'de> Visitor<'de> for TableOrWord {
            type Value = Override;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a table such as { threshold = 10 }, a list of such, or \"on\", \"dry_run\" or \
                     \"off\"",
                )
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Override, E> {
                Ok(Override::new().enforcement(enforcement(word)?))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Override, A::Error> {
                OverrideTable::deserialize(MapAccessDeserializer::new(map)).map(Into::into)
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<Override, A::Error> {
                let windows = Vec::<Override>::deserialize(SeqAccessDeserializer::new(seq))?;
                if windows.is_empty() {
                    return Err(de::Error::custom("a list of overrides is not empty"));
                }
                Ok(windows.into())
            }
        }

        deserializer.deserialize_any(TableOrWord)
    }
}

fn enforcement<E: de::Error>(word: &str) -> Result<Enforcement, E> {
    Enforcement::parse(word).ok_or_else(|| E::unknown_variant(word, &["on", "dry_run", "off"]))
}

impl<'de> Deserialize<'de> for Enforcement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        enforcement(&word)
    }
}

impl Serialize for Enforcement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
