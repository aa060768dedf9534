//! A violation of a rule, and its message.

#[cfg(test)]
mod tests;

mod can_never_admit;
mod span;

use std::fmt;

use self::span::Span;
use crate::{
    Algorithm,
    bounds::{MAX_BLOCKS, MAX_TIERS},
};

/// A violation of a policy's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum PolicyFault {
    /// A period is shorter than 1 ms. It is in microseconds.
    PeriodTooShort { period: u64 },
    /// A period is longer than 366 days.
    PeriodTooLong,
    /// A threshold is 0, which admits nothing.
    ThresholdZero,
    /// A threshold is larger than its algorithm can count exactly.
    ThresholdTooLarge { threshold: u64, largest: u64 },
    /// A burst is 0.
    BurstZero,
    /// A burst is given to an algorithm without a bucket.
    BurstWithoutBucket { algorithm: Algorithm },
    /// A burst is given together with several tiers.
    BurstWithTiers,
    /// A bucket has more tokens than can be counted exactly at its rate.
    BucketTooLarge { burst: u64, largest: u64 },
    /// `count_rejected` is set for a fixed window, where recorded refusals change nothing.
    CountRejectedInFixedWindow,
    /// The policy has more than [`MAX_TIERS`] tiers.
    TooManyTiers,
    /// A tier is given twice.
    TierTwice,
    /// A tier can never refuse, because another one always refuses first: that of this period, in
    /// microseconds, and this threshold.
    DeadTier { period: u64, threshold: u64 },
    /// A cost is 0.
    CostZero,
    /// A call costs more than the smallest threshold, and can never be admitted.
    CostOverThreshold { cost: u64, threshold: u64 },
    /// A call costs more than the bucket's size, and can never be admitted.
    CostOverBurst { cost: u64, burst: u64 },
    /// `concurrency` is 0, which admits nothing.
    ConcurrencyZero,
    /// A `concurrency_timeout` is shorter than 100 ms or longer than one day. It is in
    /// microseconds.
    ConcurrencyTimeoutOutOfRange { timeout: u64 },
    /// A `concurrency_timeout` is given without `concurrency`.
    ConcurrencyTimeoutWithoutConcurrency,
    /// An argument needs a window: a policy of `concurrency` alone has none, and so no units.
    NothingToCount { argument: &'static str },
    /// A request id is given to an algorithm that keeps no entry for each call.
    RequestIdWithoutLog { algorithm: Algorithm },
    /// A request id is given together with `count_rejected`.
    RequestIdWithCountRejected,
    /// A limit is paused that is no sliding window, or counts refused calls.
    PauseWithoutLine,
    /// Two of several calls that are decided together may wait.
    SeveralWaits,
    /// A lease is shorter than 1 ms. It is in microseconds.
    LeaseTooShort { lease: u64 },
    /// A lease is longer than a tenth of the shortest period. Both are in microseconds.
    LeaseTooLong { lease: u64, period: u64 },
    /// A bucket has too few tokens for its lease.
    BucketTooSmall { burst: u64, smallest: u64 },
    /// A call costs more than a bucket holds under its lease, and can never be admitted.
    CostOverLeasedBucket { cost: u64, largest: u64 },
    /// A lease is given together with an argument that needs the store at each call.
    LeaseWith { argument: &'static str },
    /// A call leaves more than 99 % of its limit.
    LeaveTooLarge { share: u64 },
    /// A call leaves so many percent, rounded up, that no unit of a threshold, a burst or the
    /// permits can be used.
    LeavesNothing { share: u64, quota: u64 },
    /// A call costs more than may be used of a threshold or burst if its share is left.
    CostOverUsable { cost: u64, usable: u64, quota: u64 },
    /// A limit of several tiers warns.
    WarnAtWithTiers,
    /// The mark of a warning is 0 or above 100 %.
    WarnAtOutOfRange { percent: u64 },
    /// A call leaves a share of its limit, together with an argument that uses it up.
    LeaveWith { argument: &'static str },
    /// The period of a window of the calendar is no unit of it.
    PeriodOffCalendar,
    /// A window of the calendar is given together with an argument that needs windows of a fixed
    /// length.
    CalendarWith { argument: &'static str },
    /// A time zone is given for windows that are none of the calendar.
    ZoneWithoutCalendar,
    /// A time zone is in no database.
    UnknownZone { zone: &'static str },
    /// The program is built without the feature `calendar`.
    CalendarWithoutFeature,
    /// A `block` has more than [`MAX_BLOCKS`] lengths.
    TooManyBlocks,
    /// A length of a `block` is shorter than 1 ms or longer than 31 days. It is in microseconds.
    BlockOutOfRange { length: u64 },
    /// A length of a `block` is not longer than the one before it.
    BlockDoesNotGrow,
    /// A call under a `block` has an argument that does not go with it.
    BlockWith { argument: &'static str },
}

impl fmt::Display for PolicyFault {
    #[expect(clippy::too_many_lines, reason = "one message for each rule")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PeriodTooShort { period } => {
                write!(f, "`period` must be at least 1 ms, but is {}", Span(period))
            }
            Self::PeriodTooLong => f.write_str("`period` must be at most 366 days"),
            Self::ThresholdZero => f.write_str("`threshold` must be at least 1"),
            Self::ThresholdTooLarge { threshold, largest } => {
                write!(f, "`threshold` must be at most {largest}, but is {threshold}")
            }
            Self::BurstZero => f.write_str("`burst` must be at least 1"),
            Self::BurstWithoutBucket { algorithm } => {
                let algorithm = algorithm.as_str();
                write!(f, "`burst` is the size of a `token_bucket`; a `{algorithm}` has none")
            }
            Self::BurstWithTiers => f.write_str(
                "`burst` is the size of one bucket; with several tiers each is a bucket of its \
                 threshold",
            ),
            Self::BucketTooLarge { burst, largest } => write!(
                f,
                "a bucket of {burst} tokens cannot be counted exactly at this rate, only up to \
                 {largest}; a threshold that divides the period's microseconds has more room"
            ),
            Self::CountRejectedInFixedWindow => f.write_str(
                "`count_rejected` has no effect on a `fixed_window`: a full window stays full \
                 until it ends, refused calls change nothing",
            ),
            Self::TooManyTiers => write!(
                f,
                "at most {MAX_TIERS} tiers are decided together, one fewer with a `block`; remove this one"
            ),
            Self::TierTwice => f.write_str("this tier is given twice; remove one of them"),
            Self::DeadTier { period, threshold } => write!(
                f,
                "this tier can never refuse: the tier of {threshold} per {} is at least as strict \
                 over its whole period; remove this one, or make it stricter",
                Span(period)
            ),
            Self::CostZero => {
                f.write_str("`cost` must be at least 1; `skip` lets calls pass unchecked")
            }
            Self::CostOverThreshold { cost, threshold } => {
                write!(f, "`cost` is {cost}, which can never pass a threshold of {threshold}")
            }
            Self::CostOverBurst { cost, burst } => {
                write!(f, "`cost` is {cost}, which can never pass a burst of {burst}")
            }
            Self::ConcurrencyZero => f.write_str("`concurrency` must be at least 1"),
            Self::ConcurrencyTimeoutOutOfRange { timeout } => write!(
                f,
                "`concurrency_timeout` must be at least 100 ms and at most 1 d, but is {}",
                Span(timeout)
            ),
            Self::ConcurrencyTimeoutWithoutConcurrency => f.write_str(
                "`concurrency_timeout` is the time after which a lost call no longer counts as in \
                 flight; it needs `concurrency`",
            ),
            Self::NothingToCount { argument } => write!(
                f,
                "`{argument}` needs a window: a policy of `concurrency` alone has nothing to count"
            ),
            Self::RequestIdWithoutLog { algorithm } => {
                let algorithm = algorithm.as_str();
                write!(
                    f,
                    "a request id needs a `sliding_window`, which remembers each call; a \
                     `{algorithm}` does not"
                )
            }
            Self::PauseWithoutLine => f.write_str(
                "a pause needs a `Policy::sliding_window(..)` without `count_rejected`: it is an entry of the \
                 log",
            ),
            Self::SeveralWaits => f.write_str(
                "one of several calls that are decided together may have a `max_wait`: two would hold \
                 what they have taken while they wait",
            ),
            Self::RequestIdWithCountRejected => f.write_str(
                "a request id does not go with `count_rejected`: an admitted call and a refused \
                 one would have the same name",
            ),
            Self::LeaseTooShort { lease } => {
                write!(f, "`lease` must be at least 1 ms, but is {}", Span(lease))
            }
            Self::LeaseTooLong { lease, period } => write!(
                f,
                "`lease` must be at most a tenth of the shortest period of {}, but is {}",
                Span(period),
                Span(lease)
            ),
            Self::BucketTooSmall { burst, smallest } => write!(
                f,
                "under this `lease` a bucket needs at least {smallest} tokens, one more than refill \
                 during the lease, but has {burst}"
            ),
            Self::CostOverLeasedBucket { cost, largest } => write!(
                f,
                "`cost` is {cost}, which can never pass: under its `lease` the bucket holds at most \
                 {largest} tokens"
            ),
            Self::LeaseWith { argument } => write!(
                f,
                "`{argument}` needs the store at each call, and under `lease` a process decides \
                 without it; remove one of them"
            ),
            Self::LeaveTooLarge { share } => {
                write!(f, "`leave` must be at most 99 %, but is {share} %")
            }
            Self::LeavesNothing { share, quota } => write!(
                f,
                "`leave` is {share} %, rounded up all of {quota}: no call could ever pass"
            ),
            Self::CostOverUsable { cost, usable, quota } => write!(
                f,
                "`cost` is {cost}, which can never pass: under its `leave` a call uses at most {usable} of \
                 {quota}"
            ),
            Self::WarnAtWithTiers => f.write_str(
                "`warn_at` needs a limit of one tier: a decision has the numbers of one, and another \
                 may reach its mark; write one attribute for each tier",
            ),
            Self::WarnAtOutOfRange { percent } => {
                write!(f, "`warn_at` must be at least 1 % and at most 100 %, but is {percent} %")
            }
            Self::LeaveWith { argument } => write!(
                f,
                "`leave` does not go with `{argument}`: {}; remove one of them",
                match argument {
                    "max_wait" => "a turn in a line is promised, and a call that leaves something is \
                                   promised nothing",
                    _ => "refused calls are counted too, and would use up what they are to leave",
                }
            ),
            Self::PeriodOffCalendar => f.write_str(
                "the `period` of a `calendar_window` is `\"day\"`, `\"week\"` or `\"month\"`",
            ),
            Self::CalendarWith { argument: "tier" } => f.write_str(
                "a `calendar_window` has one tier; several attributes are decided together as well",
            ),
            Self::CalendarWith { argument } => write!(
                f,
                "`{argument}` does not go with a `calendar_window`, whose windows are long and end \
                 together for all callers; remove one of them"
            ),
            Self::ZoneWithoutCalendar => f.write_str(
                "`zone` is the time zone of a `calendar_window`; windows of other algorithms have none",
            ),
            Self::UnknownZone { zone } => write!(
                f,
                "the time zone `{zone}` is in no database; `zone` is a name of the IANA such as \
                 `\"Europe/Berlin\"`"
            ),
            Self::CalendarWithoutFeature => f.write_str(
                "a `calendar_window` needs the feature `calendar` of `ratelimit-runtime`",
            ),
            Self::TooManyBlocks => {
                write!(f, "`block` has at most {MAX_BLOCKS} lengths; remove this one")
            }
            Self::BlockOutOfRange { length } => {
                let length = Span(length);
                write!(f, "`block` must be at least 1 ms and at most 31 d, but is {length}")
            }
            Self::BlockDoesNotGrow => {
                f.write_str("each length of `block` must be longer than the one before it")
            }
            Self::BlockWith { argument } => write!(
                f,
                "`block` does not go with `{argument}`: {}; remove one of them",
                match argument {
                    "max_wait" => "who is shut out for asking too soon does not stand in line",
                    "request_id" => {
                        "a repeat of an admitted call would be refused while its caller is blocked"
                    }
                    _ => "a refused call that leaves a share to others would shut out the caller's \
                          other calls",
                }
            ),
        }
    }
}
