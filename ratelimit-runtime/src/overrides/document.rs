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
//! ```

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor, value::MapAccessDeserializer},
};

use super::{Enforcement, Fault, Layer, Override, OverrideError};
use crate::policy::Tier;

/// Parses a document: JSON if it starts with a brace, else TOML.
pub(crate) fn parse(text: &str) -> Result<Layer, Fault> {
    let document: Document = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(unreadable)?
    } else {
        toml::from_str(text).map_err(|error| unreadable(placed(text, &error)))?
    };
    Ok(Layer { enforcement: document.enforcement, limits: document.limits })
}

/// Parses one override: a JSON object, or the word of an enforcement.
pub(super) fn parse_one(text: &str) -> Result<Override, Fault> {
    if let Some(enforcement) = Enforcement::parse(text.trim()) {
        return Ok(Override::new().enforcement(enforcement));
    }
    if !text.trim_start().starts_with('{') {
        return Err(Fault::Unreadable(format!(
            "`{}` is none of on, dry_run and off, and no object such as {{\"threshold\": 10}}",
            text.trim()
        )));
    }
    serde_json::from_str(text).map_err(unreadable)
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
    Fault::Unreadable(error.to_string().trim_end().to_owned())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    enforcement: Option<Enforcement>,
    #[serde(default)]
    limits: BTreeMap<String, Override>,
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
    threshold: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tiers: Vec<TierTable>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct TierTable {
    period: PeriodText,
    threshold: u32,
}

struct PeriodText(Duration);

impl From<OverrideTable> for Override {
    fn from(table: OverrideTable) -> Self {
        let OverrideTable { enforcement, period, threshold, tiers, burst, concurrency } = table;
        let period = period.map(|PeriodText(period)| period);
        let tiers = tiers.into_iter().map(|it| Tier::new(it.period.0, it.threshold)).collect();
        Self { enforcement, period, threshold, tiers, burst, concurrency }
    }
}

impl Serialize for Override {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { enforcement, period, threshold, tiers, burst, concurrency } = self;
        let tier = |tier: &Tier| TierTable {
            period: PeriodText(tier.period()),
            threshold: tier.threshold(),
        };
        let table = OverrideTable {
            enforcement: *enforcement,
            period: period.map(PeriodText),
            threshold: *threshold,
            tiers: tiers.iter().map(tier).collect(),
            burst: *burst,
            concurrency: *concurrency,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_in_toml_and_in_json() {
        let toml = parse(
            r#"
            enforcement = "on"

            [limits]
            search = "dry_run"

            [limits."app::reply"]
            period = "1m 30s"
            threshold = 10
            enforcement = "off"

            [limits.mail]
            tiers = [{ period = 60, threshold = 2 }, { period = "1h", threshold = 10 }]

            [limits.paced]
            burst = 3
            "#,
        );
        let json = parse(
            r#"{
                "enforcement": "on",
                "limits": {
                    "search": { "enforcement": "dry_run" },
                    "app::reply": { "period": 90, "threshold": 10, "enforcement": "off" },
                    "mail": { "tiers": [
                        { "period": "1m", "threshold": 2 }, { "period": 3600, "threshold": 10 }
                    ] },
                    "paced": { "burst": 3 }
                }
            }"#,
        );
        let toml = toml.unwrap();
        assert_eq!(json, Ok(toml.clone()));
        assert_eq!(toml.enforcement, Some(Enforcement::On));
        let seconds = Duration::from_secs;
        let expected = [
            (
                "app::reply",
                Override::new().period(seconds(90)).threshold(10).enforcement(Enforcement::Off),
            ),
            ("mail", Override::new().tier(seconds(60), 2).tier(seconds(3600), 10)),
            ("paced", Override::new().burst(3)),
            ("search", Override::new().enforcement(Enforcement::DryRun)),
        ];
        let limits: Vec<_> =
            toml.limits.iter().map(|(name, it)| (name.as_str(), it.clone())).collect();
        assert_eq!(limits, expected);
        assert_eq!(parse(""), Ok(Layer::default()));
    }

    #[test]
    fn an_unreadable_document_is_an_error_with_its_place() {
        for (text, parts) in [
            ("[limits.reply]\nthreshold = -1", ["line 2", "-1"]),
            ("[limits.reply]\nthreshhold = 1", ["line 2", "unknown field `threshhold`"]),
            ("[limits.reply]\nperiod = \"30\"", ["line 2", "`period` needs a unit after `30`"]),
            ("[limits.reply]\nperiod = -30", ["line 2", "`period` cannot be negative"]),
            ("[limits.reply]\nperiod = 1.5", ["line 2", "a whole number of seconds"]),
            ("[limits]\nreply = 5", ["line 2", "a table such as { threshold = 10 }"]),
            ("[limits]\nreply = \"dry-run\"", ["line 2", "unknown variant `dry-run`"]),
            ("limit = 1", ["line 1", "unknown field `limit`"]),
            ("[limits.reply", ["line 1", "TOML parse error"]),
            ("{\n\"limits\": {\"reply\": {\"threshold\": 5000000000}}}", ["line 2", "u32"]),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{text}: {message}");
        }
    }

    #[test]
    fn an_override_is_parsed_from_its_own_text() {
        for what in [
            Override::new(),
            Override::new().enforcement(Enforcement::DryRun),
            Override::new().period(Duration::from_millis(1_500)).threshold(2),
            Override::new().tier(Duration::from_secs(1), 2).tier(Duration::from_secs(60), 9),
            Override::new().burst(7),
        ] {
            assert_eq!(parse_one(&what.to_string()), Ok(what));
        }
        assert_eq!(parse_one(" off\n"), Ok(Override::new().enforcement(Enforcement::Off)));
        let message = parse_one("of").unwrap_err().to_string();
        assert!(message.starts_with("`of` is none of on, dry_run and off"), "{message}");
    }
}
