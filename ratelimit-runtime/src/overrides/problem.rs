//! Overrides that change no limit: rejected ones, misspelt names, and a source that cannot be read.

use std::{
    cell::LazyCell,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use parking_lot::Mutex;

use super::{
    OverrideError, OverrideSource, Overrides,
    layer::ALL_LIMITS,
    validate::{misfit, unscalable},
};
use crate::{
    error::{OneLine, UnavailableReason},
    policy::Policy,
    registry,
    telemetry::{self, KINDS, ProblemCounts, SOURCES},
};

/// An override that changes no limit, or a source that cannot be read; see [`Overrides::problems`].
///
/// Its `Display` is one line for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OverrideProblem {
    /// A value or a document that was rejected. The previous one stays in effect.
    #[non_exhaustive]
    Rejected {
        /// The source.
        source: OverrideSource,
        /// The reason, with the place.
        error: OverrideError,
    },
    /// An override of a limit that no function declares and no check by hand has used yet.
    #[non_exhaustive]
    UnknownLimit {
        /// The source.
        source: OverrideSource,
        /// The name as written.
        limit: String,
        /// The name of the limit that was probably meant.
        nearest: Option<&'static str>,
    },
    /// The hash on Redis cannot be read. Its overrides stay in effect as they were.
    #[non_exhaustive]
    Unreadable {
        /// The reason.
        reason: UnavailableReason,
    },
    /// Redis has lost the hash. Its overrides stay in effect until a field of the hash is written.
    #[non_exhaustive]
    Lost {
        /// The key of the hash.
        key: String,
    },
}

impl OverrideProblem {
    /// Returns the source of the override.
    #[must_use]
    pub fn source(&self) -> OverrideSource {
        match self {
            Self::Rejected { source, .. } | Self::UnknownLimit { source, .. } => *source,
            Self::Unreadable { .. } | Self::Lost { .. } => OverrideSource::Redis,
        }
    }

    /// Returns the index of the kind in [`KINDS`].
    fn kind(&self) -> usize {
        match self {
            Self::Rejected { .. } => 0,
            Self::UnknownLimit { .. } => 1,
            Self::Unreadable { .. } => 2,
            Self::Lost { .. } => 3,
        }
    }
}

impl fmt::Display for OverrideProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected { error, .. } => write!(f, "rejected: {error}"),
            Self::UnknownLimit { source, limit, nearest } => {
                write!(f, "{source}: no limit is named `{}`", OneLine(limit))?;
                match nearest {
                    Some(nearest) => write!(f, "; `{nearest}` is"),
                    None => Ok(()),
                }
            }
            Self::Unreadable { reason } => write!(
                f,
                "the overrides on Redis cannot be read: {reason}; the previous ones stay in effect"
            ),
            Self::Lost { key } => {
                let key = OneLine(key);
                write!(
                    f,
                    "Redis has lost `{key}`; its overrides stay in effect until a field is "
                )?;
                f.write_str(if key.0.ends_with(":callers") {
                    "written, such as `#` with any value"
                } else {
                    "written, such as `*` with the value on"
                })
            }
        }
    }
}

/// The problems that the overrides in effect do not show, and the counts that were reported.
#[derive(Default)]
pub(super) struct Problems(Mutex<Found>);

#[derive(Default)]
struct Found {
    /// By source; those of callers on Redis have a list of their own.
    rejected: BTreeMap<(OverrideSource, bool), Vec<OverrideError>>,
    /// The overrides of unknown limits, which were logged.
    unknown: BTreeSet<(OverrideSource, String)>,
    reported: ProblemCounts,
}

/// The problems of a limiter end with it.
impl Drop for Problems {
    fn drop(&mut self) {
        telemetry::count_override_problems(&self.0.lock().reported, &ProblemCounts::default());
    }
}

impl Overrides {
    /// Returns the overrides that change no limit, and the state of a source that cannot be read.
    ///
    /// The metric `ratelimit_override_problems` and
    /// [`stats::override_problems`](crate::stats::override_problems) count them, and the live page
    /// lists them. Each is also logged once.
    ///
    /// ```
    /// use ratelimit_runtime::{Limiter, Override, RateLimitError, rate_limit};
    ///
    /// #[rate_limit(name = "checkout", period = "1m", threshold = 5, key = user)]
    /// async fn checkout(user: u64) -> Result<(), RateLimitError> {
    ///     Ok(())
    /// }
    ///
    /// # fn main() -> Result<(), ratelimit_runtime::overrides::OverrideError> {
    /// let limiter = Limiter::in_memory();
    /// limiter.overrides().here().set("chekout", Override::new().threshold(50))?;
    /// let problems = limiter.overrides().problems();
    /// assert_eq!(problems[0].to_string(), "the program: no limit is named `chekout`; `checkout` is");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn problems(&self) -> Vec<OverrideProblem> {
        self.problems_with(registry::nearest)
    }

    fn problems_with(&self, nearest: Nearest) -> Vec<OverrideProblem> {
        let mut problems = Vec::new();
        for ((source, _), errors) in &self.shared.problems.0.lock().rejected {
            let rejected = |error: &OverrideError| OverrideProblem::Rejected {
                source: *source,
                error: error.clone(),
            };
            problems.extend(errors.iter().map(rejected));
        }
        let known = LazyCell::new(registry::names);
        let layers = self.shared.layers.lock();
        let has_own_scale = |limit: &str| {
            let mut own = layers.iter().filter_map(|layer| layer.current(limit));
            own.any(|what| what.scale_in_thousandths.is_some())
        };
        for (source, layer) in OverrideSource::ALL.into_iter().zip(&*layers) {
            let all_limits = layer.current(ALL_LIMITS);
            if let Some(scale) = all_limits.and_then(|what| what.scale_in_thousandths) {
                let unscalable = unscalable(scale, has_own_scale).into_iter();
                let rejected = |error| OverrideProblem::Rejected { source, error };
                problems.extend(unscalable.map(rejected));
            }
            let unknown = layer.names().filter(|name| !known.contains(name));
            problems.extend(unknown.map(|limit| OverrideProblem::UnknownLimit {
                source,
                limit: limit.to_owned(),
                nearest: nearest(limit, &known),
            }));
            // A window of the calendar that is checked by hand is known after its override was
            // read. Without one, the overrides of all callers are not searched.
            if layer.names().any(|name| registry::calendar_window_by_hand(name).is_some()) {
                let misfits = layer.iter().filter_map(|(place, what)| misfit(&place.limit, what));
                problems.extend(misfits.map(|error| OverrideProblem::Rejected { source, error }));
            }
        }
        drop(layers);
        #[cfg(feature = "overrides")]
        if let Some(hashes) = &self.shared.hashes {
            problems.extend(hashes.problems());
        }
        problems
    }

    /// Replaces the rejected overrides of a source, or of the callers in its own hash.
    #[cfg(feature = "overrides")]
    pub(super) fn reject(
        &self,
        source: OverrideSource,
        is_of_callers: bool,
        errors: Vec<OverrideError>,
    ) {
        self.shared.problems.0.lock().rejected.insert((source, is_of_callers), errors);
        self.report_problems();
    }

    /// Updates the counts if the limit has an override: it has been used for the first time.
    pub(crate) fn on_new_limit(&self, policy: &Policy) {
        if self.may_apply(policy) {
            self.report_problems();
        }
    }

    /// Updates the counts, and logs the overrides of unknown limits that are new. What was meant is
    /// searched for those alone: a hash on Redis, which is read each second, has the names of many
    /// services.
    pub(super) fn report_problems(&self) {
        let (mut now, mut unknown) = (ProblemCounts::default(), BTreeSet::new());
        for problem in self.problems_with(|_, _| None) {
            now[problem.source() as usize][problem.kind()] += 1;
            if let OverrideProblem::UnknownLimit { source, limit, .. } = problem {
                unknown.insert((source, limit));
            }
        }
        let mut found = self.shared.problems.0.lock();
        let before = std::mem::replace(&mut found.reported, now);
        let new: Vec<_> = unknown.difference(&found.unknown).cloned().collect();
        found.unknown = unknown;
        drop(found);
        telemetry::count_override_problems(&before, &now);
        for (source, limit) in new {
            let nearest = registry::nearest(&limit, &registry::names());
            let problem = OverrideProblem::UnknownLimit { source, limit, nearest };
            if nearest.is_some() {
                tracing::warn!(%problem, "override changes no limit");
            } else {
                tracing::info!(%problem, "override changes no limit until one of its name is checked");
            }
        }
    }
}

/// Returns the name of a limit that was probably meant by one that no limit has.
type Nearest = fn(&str, &BTreeSet<&'static str>) -> Option<&'static str>;

const _: () = assert!(SOURCES.len() == OverrideSource::ALL.len() && KINDS.len() == 4);
