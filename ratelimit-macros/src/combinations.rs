//! Arguments that exclude each other, or need one another.

use proc_macro2::Ident;
use ratelimit_core::rules;

use crate::errors::Errors;

/// Pairs of arguments that exclude each other, with the reason.
const EXCLUSIONS: [(&str, &str, &str); 4] = [
    (
        "fallible",
        "otherwise",
        "`otherwise` returns a value of the written type, which needs no `fallible`",
    ),
    ("fallible", "soft", "with `soft` no call is refused, which needs no `fallible`"),
    ("soft", "otherwise", "with `soft` no call is refused, so that `otherwise` is never returned"),
    (
        "count_rejected",
        "settle",
        "under `count_rejected` calls are recorded that have no output to settle by",
    ),
];

/// Arguments that need another one, with the reason.
const NEEDS: [(&str, &str, &str); 2] = [
    ("soft", "decision", "the body reads in it whether the limit refused the call"),
    ("concurrency_timeout", "concurrency", "it is the time after which a permit is free"),
];

/// The arguments of a policy, which one that is named by its path has already.
const OF_POLICY: [&str; 10] = [
    "period",
    "threshold",
    "tier",
    "algorithm",
    "burst",
    "name",
    "count_rejected",
    "concurrency",
    "concurrency_timeout",
    "lease",
];

/// The arguments that need a window.
const OF_WINDOWS: [&str; 7] =
    ["cost", "algorithm", "burst", "count_rejected", "request_id", "settle", "lease"];

/// Returns the second of two arguments, if both are written.
pub(crate) fn second<'a>(written: &'a [Ident], one: &str, other: &str) -> Option<&'a Ident> {
    let mut both = written.iter().filter(|name| *name == one || *name == other);
    let first = both.next()?;
    both.find(|name| *name != first)
}

/// Validates the names of the arguments, in the order in which they are written. The error of an
/// exclusion is at the second one.
pub(crate) fn validate(written: &[Ident], errors: &mut Errors) {
    for (one, other, reason) in EXCLUSIONS {
        if let Some(second) = second(written, one, other) {
            errors.at(second, format!("{reason}; remove `{one}` or `{other}`"));
        }
    }
    for argument in OF_POLICY {
        if let Some(second) = second(written, "policy", argument) {
            let message = format!(
                "`{argument}` is part of a policy, and `policy` names a whole one; write it there, \
                 or remove `policy`"
            );
            errors.at(second, message);
        }
    }
    let is_written = |argument: &str| written.iter().any(|it| it == argument);
    if is_written("concurrency") && !is_written("tier") {
        validate_windows_beside_concurrency(written, errors);
    }
    for (name, needed, reason) in NEEDS {
        if let Some(argument) = written.iter().find(|it| *it == name && !is_written(needed)) {
            errors.at(argument, format!("`{name}` needs `{needed} = ..`: {reason}"));
        }
    }
}

/// Validates that there is a whole window beside `concurrency`, or nothing that needs one.
fn validate_windows_beside_concurrency(written: &[Ident], errors: &mut Errors) {
    let find = |argument: &str| written.iter().find(|it| *it == argument);
    match (find("period"), find("threshold")) {
        (Some(_), Some(_)) => {}
        (Some(argument), None) | (None, Some(argument)) => errors.at(
            argument,
            "beside `concurrency`, a window needs both `period` and `threshold`: there is no default",
        ),
        (None, None) => {
            for argument in OF_WINDOWS {
                if let Some(second) = second(written, "concurrency", argument) {
                    errors.at(second, rules::nothing_to_count(argument));
                }
            }
        }
    }
}
