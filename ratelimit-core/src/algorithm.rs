//! The algorithms' names, and the units of the calendar.

/// An algorithm that counts calls. Every store computes it alike, in integers and microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// An exact log. A call of cost `c` at `now` needs room for `c` units in every tier: the units
    /// admitted in `(now - period, now]` plus `c` are at most the threshold.
    ///
    /// It keeps one entry for each admitted call, with its units. Costs and thresholds may be up to
    /// 1 000 000 000. On Redis the entries are a sorted set.
    ///
    /// # Many calls
    ///
    /// The log of a caller has at most 100 000 entries. From 90 000 on, a call joins the newest
    /// entry if both lie in the same 4 096th part of the shortest period, and leaves with it at
    /// most that much later. Its units can then be raised, but are not given back. Without a
    /// request id, it is counted twice if it is sent to Redis again because its reply was lost.
    /// Calls of one unit join none if all thresholds are at most 100 000. A call beyond 100 000
    /// entries is refused, with no unit left, until no policy of its name counts the oldest one. On
    /// Redis the wait of a refusal is a lower bound where more than 4 096 calls have to leave the
    /// window first.
    SlidingWindow,
    /// Two adjacent windows. Of the earlier one, the share counts that a window ending now still
    /// covers. A call is admitted if and only if
    /// `previous * (time left in the current window) / period + current + cost` is at most the
    /// threshold. Constant size. The estimate is exact if the calls of the previous window were
    /// evenly spread. No window that starts at a multiple of the period ever exceeds the threshold.
    ///
    /// Described by Cloudflare in 2017, "How we built rate limiting capable of scaling to millions
    /// of domains". The comparison is in integers. If `threshold * period` exceeds 2^53
    /// microseconds, time is counted in ticks of `ceil(threshold * period / 2^53)` microseconds,
    /// and rounded towards refusal.
    SlidingCounter,
    /// A window opens at the first call and ends a period later; the calls in it are counted.
    /// Constant size, and the cheapest to decide. Across the end of a window up to twice the
    /// threshold can pass within one period.
    FixedWindow,
    /// A bucket of `burst` tokens, refilled continuously at `threshold / period`; a call takes as
    /// many tokens as it costs. Constant size. Within one period up to `burst + threshold` units
    /// can pass; a burst of 1 spaces calls evenly.
    ///
    /// Its decisions are those of the generic cell rate algorithm (GCRA, ITU-T I.371) in the form
    /// "virtual scheduling". Parts of a token are counted in integers, so that nothing drifts.
    TokenBucket,
    /// Windows of the calendar: a day, a week from Monday on, or a month, in a time zone. The calls
    /// in the present one are counted. Constant size. Across the end of a window up to twice the
    /// threshold can pass.
    CalendarWindow,
}

impl Algorithm {
    /// The algorithms whose periods are of any length: all but
    /// [`CalendarWindow`](Self::CalendarWindow).
    pub const ALL: &'static [Self] =
        &[Self::SlidingWindow, Self::SlidingCounter, Self::FixedWindow, Self::TokenBucket];

    /// Returns the name, as it is written in the attribute and in keys.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SlidingWindow => "sliding_window",
            Self::SlidingCounter => "sliding_counter",
            Self::FixedWindow => "fixed_window",
            Self::TokenBucket => "token_bucket",
            Self::CalendarWindow => "calendar_window",
        }
    }
}

/// A window of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CalendarUnit {
    /// From midnight to midnight.
    Day,
    /// From Monday to Monday, as in ISO 8601.
    Week,
    /// From the first of a month to the first of the next.
    Month,
}

impl CalendarUnit {
    /// All units.
    pub const ALL: &'static [Self] = &[Self::Day, Self::Week, Self::Month];

    /// Returns the name, as it is written in the attribute.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    /// Returns the nominal length in microseconds, by which a policy knows the unit: 1, 7 or 31
    /// days.
    #[doc(hidden)]
    #[must_use]
    pub const fn nominal(self) -> u64 {
        let days = match self {
            Self::Day => 1,
            Self::Week => 7,
            Self::Month => 31,
        };
        days * 24 * 60 * 60 * 1_000_000
    }

    /// Returns the unit of this nominal length.
    #[doc(hidden)]
    #[must_use]
    pub const fn of_nominal(micros: u64) -> Option<Self> {
        let mut at = 0;
        while at < Self::ALL.len() {
            if Self::ALL[at].nominal() == micros {
                return Some(Self::ALL[at]);
            }
            at += 1;
        }
        None
    }
}
