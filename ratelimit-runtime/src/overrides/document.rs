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
//! [[callers]]
//! limit = "search"                  # all limits without it
//! caller = ["acme", "42"]           # or one text
//! threshold = 500
//! until = 2026-11-27T18:00:00Z
//! ```

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    str::FromStr,
    time::{Duration, SystemTime},
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Unexpected, Visitor, value::MapAccessDeserializer},
};

use toml::value::Datetime;

use super::{
    Enforcement, Fault, Layer, Override, OverrideError, callers::Identities, layer::ALL_LIMITS,
    until,
};
use crate::{key::Caller, policy::Tier};

/// Parses a document: JSON if it starts with a brace, else TOML. Callers become those that `identities` writes.
pub(super) fn parse(text: &str, identities: &Identities) -> Result<Layer, Fault> {
    let document: Document = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(unreadable)?
    } else {
        toml::from_str(text).map_err(|error| unreadable(placed(text, &error)))?
    };
    let Document { enforcement, limits, callers } = document;
    let mut layer = Layer::default();
    for (limit, what) in limits {
        layer.set(&limit, None, Some(what));
    }
    if let Some(enforcement) = enforcement {
        layer.enforce(enforcement);
    }
    for CallerItem { limit, caller: CallerParts(caller), what } in callers {
        let (limit, caller) = (limit.as_deref().unwrap_or(ALL_LIMITS), identities.text(&caller));
        layer.set(limit, Some(&caller), Some(what.into()));
    }
    Ok(layer)
}

/// Parses one override: a JSON object, or the word of an enforcement.
pub(super) fn parse_one(text: &str) -> Result<Override, Fault> {
    if let Some(enforcement) = Enforcement::parse(text.trim()) {
        return Ok(Override::new().enforcement(enforcement));
    }
    if !text.trim_start().starts_with('{') {
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

/// Parses a JSON object such as `{"threshold": 10}`, or the word of an enforcement.
impl FromStr for Override {
    type Err = OverrideError;

    fn from_str(text: &str) -> Result<Self, OverrideError> {
        Ok(parse_one(text)?)
    }
}

/// Writes the JSON object that is parsed as this override. Periods are rounded up to a millisecond.
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

/// The parts of a caller, or its only one.
#[derive(Deserialize)]
#[serde(untagged, expecting = "`caller` is a text or a list of texts")]
enum TextOrTexts {
    Text(String),
    Texts(Vec<String>),
}

/// The table of one override.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct OverrideTable {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enforcement: Option<Enforcement>,
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
    since: Option<UntilText>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    deny: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<UntilText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct TierTable {
    period: PeriodText,
    threshold: Whole,
}

/// A whole number; the errors of others name no type of Rust.
#[derive(Clone, Copy, Serialize)]
#[serde(transparent)]
struct Whole(u32);

struct PeriodText(Duration);

struct UntilText(SystemTime);

struct CallerParts(Caller);

impl From<OverrideTable> for Override {
    fn from(table: OverrideTable) -> Self {
        let OverrideTable { enforcement, threshold, burst, concurrency, deny, .. } = table;
        let OverrideTable { period, tiers, candidate, since, until, by, .. } = table;
        let period = period.map(|PeriodText(period)| period);
        let tiers = tiers.into_iter().map(|it| Tier::new(it.period.0, it.threshold.0)).collect();
        let [threshold, burst, concurrency] =
            [threshold, burst, concurrency].map(|it| it.map(|Whole(number)| number));
        let [since, until] = [since, until].map(|it| it.map(|UntilText(time)| time));
        let numbers = Self { period, threshold, tiers, burst, concurrency, ..Self::new() };
        Self { enforcement, candidate, since, deny, until, by, ..numbers }
    }
}

impl Serialize for Override {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { enforcement, candidate, since, deny, until, by, .. } = self;
        let Self { period, threshold, tiers, burst, concurrency, .. } = self;
        let tier = |tier: &Tier| TierTable {
            period: PeriodText(tier.period()),
            threshold: Whole(tier.threshold()),
        };
        let table = OverrideTable {
            enforcement: *enforcement,
            period: period.map(PeriodText),
            threshold: threshold.map(Whole),
            tiers: tiers.iter().map(tier).collect(),
            burst: burst.map(Whole),
            concurrency: concurrency.map(Whole),
            candidate: candidate.clone(),
            since: since.map(UntilText),
            deny: *deny,
            until: until.map(UntilText),
            by: by.clone(),
        };
        table.serialize(serializer)
    }
}

/// A table, or the word of an enforcement.
impl<'de> Deserialize<'de> for Override {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TableOrWord;

        impl<'de> Visitor<'de> for TableOrWord {
            type Value = Override;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table such as { threshold = 10 }, or \"on\", \"dry_run\" or \"off\"")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Override, E> {
                Ok(Override::new().enforcement(enforcement(word)?))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Override, A::Error> {
                OverrideTable::deserialize(MapAccessDeserializer::new(map)).map(Into::into)
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

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number up to 4294967295")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Whole, E> {
                let invalid = |_| E::invalid_value(Unexpected::Unsigned(number), &self);
                u32::try_from(number).map(Whole).map_err(invalid)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Whole, E> {
                let invalid = |_| E::invalid_value(Unexpected::Signed(number), &self);
                u32::try_from(number).map(Whole).map_err(invalid)
            }
        }

        deserializer.deserialize_any(Number)
    }
}

/// A whole number of seconds, or a string with units.
impl<'de> Deserialize<'de> for PeriodText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SecondsOrText;

        impl Visitor<'_> for SecondsOrText {
            type Value = PeriodText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number of seconds, or a string such as \"500ms\"")
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<PeriodText, E> {
                Ok(PeriodText(Duration::from_secs(seconds)))
            }

            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<PeriodText, E> {
                let seconds =
                    u64::try_from(seconds).map_err(|_| E::custom("`period` cannot be negative"))?;
                self.visit_u64(seconds)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<PeriodText, E> {
                let micros = ratelimit_core::period::parse(text)
                    .map_err(|why| E::custom(format_args!("`period` {why}")))?;
                Ok(PeriodText(Duration::from_micros(micros)))
            }
        }

        deserializer.deserialize_any(SecondsOrText)
    }
}

/// Rounded up to a millisecond, the smallest unit.
impl Serialize for PeriodText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(period) = self;
        if period.subsec_nanos() == 0 {
            return serializer.serialize_u64(period.as_secs());
        }
        let millis = period.as_nanos().div_ceil(1_000_000);
        serializer.collect_str(&format_args!("{millis}ms"))
    }
}

/// A text or a TOML date, each with a time and an offset.
impl<'de> Deserialize<'de> for UntilText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrDate;

        impl<'de> Visitor<'de> for TextOrDate {
            type Value = Datetime;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time such as 2026-11-27T18:00:00Z")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Datetime, E> {
                text.parse().map_err(|why| E::custom(format_args!("a time such as `until` {why}")))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Datetime, A::Error> {
                Datetime::deserialize(MapAccessDeserializer::new(map))
            }
        }

        let written = deserializer.deserialize_any(TextOrDate)?;
        let time = until::time(&written);
        time.map(Self)
            .map_err(|why| de::Error::custom(format_args!("a time such as `until` {why}")))
    }
}

impl Serialize for UntilText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&until::text(self.0))
    }
}

impl<'de> Deserialize<'de> for CallerParts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parts = match TextOrTexts::deserialize(deserializer)? {
            TextOrTexts::Text(part) => vec![part],
            TextOrTexts::Texts(parts) if parts.is_empty() => {
                return Err(de::Error::custom("`caller` has no part"));
            }
            TextOrTexts::Texts(parts) => parts,
        };
        Ok(Self(parts.iter().fold(Caller::without_parts(), Caller::and)))
    }
}
