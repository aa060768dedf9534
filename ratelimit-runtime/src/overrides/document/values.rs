//! The values in documents of overrides.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Unexpected, Visitor, value::MapAccessDeserializer},
};
use toml::value::Datetime;

use crate::{
    key::Caller,
    overrides::{entry::thousandths, until},
    policy::OnStoreError,
};

/// A whole number; the errors of others name no type of Rust.
#[derive(Clone, Copy, Serialize)]
#[serde(transparent)]
pub(super) struct Whole(pub(super) u32);

pub(super) struct PeriodText(pub(super) Duration);

/// A time such as the end of an override.
pub(super) struct TimeText(pub(super) SystemTime);

/// A factor, in thousandths.
pub(super) struct ScaleNumber(pub(super) u32);

/// A share in percent, such as `10%`.
pub(super) struct ShareText(pub(super) u8);

/// The answer to calls that Redis cannot decide, such as `local(20)`.
pub(super) struct AnswerText(pub(super) OnStoreError);

pub(super) struct CallerParts(pub(super) Caller);

/// The parts of a caller, or its only one.
#[derive(Deserialize)]
#[serde(untagged, expecting = "`caller` is a text or a list of texts")]
enum TextOrTexts {
    Text(String),
    Texts(Vec<String>),
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // A visitor does not know which of the three fields it reads.
                f.write_str(
                    "a whole number up to 4294967295, as `threshold`, `burst` and `concurrency` are",
                )
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
impl<'de> Deserialize<'de> for TimeText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrDate;

        impl<'de> Visitor<'de> for TextOrDate {
            type Value = Datetime;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time such as 2026-11-27T18:00:00Z")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Datetime, E> {
                text.parse().map_err(|why| {
                    E::custom(format_args!("a time such as `from` or `until` {why}"))
                })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Datetime, A::Error> {
                Datetime::deserialize(MapAccessDeserializer::new(map))
            }
        }

        let written = deserializer.deserialize_any(TextOrDate)?;
        let time = until::time(&written);
        time.map(Self).map_err(|why| {
            de::Error::custom(format_args!("a time such as `from` or `until` {why}"))
        })
    }
}

impl Serialize for TimeText {
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

/// A value as it was written, for an error that quotes it. Lists and tables may be long, and are
/// not quoted.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenValue {
    Number(f64),
    Text(String),
    Other(de::IgnoredAny),
}

impl WrittenValue {
    fn text(&self) -> &str {
        if let Self::Text(text) = self { text } else { "" }
    }
}

impl fmt::Display for WrittenValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Other(_) => f.write_str("a value of another kind"),
        }
    }
}

impl<'de> Deserialize<'de> for ScaleNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = WrittenValue::deserialize(deserializer)?;
        let scale =
            if let WrittenValue::Number(factor) = &written { thousandths(*factor) } else { None };
        let why = || format!("`scale` must be 0.001 to 1000, not {written}");
        scale.map(Self).ok_or_else(|| de::Error::custom(why()))
    }
}

impl Serialize for ScaleNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / 1e3)
    }
}

impl<'de> Deserialize<'de> for ShareText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = WrittenValue::deserialize(deserializer)?;
        let why =
            || format!("`enforce` must be a share of 1% to 100%, such as \"10%\", not {written}");
        let percent = (1..=100).find(|percent| written.text() == format!("{percent}%"));
        percent.map(Self).ok_or_else(|| de::Error::custom(why()))
    }
}

impl Serialize for ShareText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}%", self.0))
    }
}

impl<'de> Deserialize<'de> for AnswerText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = WrittenValue::deserialize(deserializer)?;
        let answer = written.text().parse();
        answer.map(Self).map_err(|words| {
            de::Error::custom(format_args!("`on_store_error` must be {words}, not {written}"))
        })
    }
}

impl Serialize for AnswerText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}
