//! Arguments that exclude each other, or need one another.
//!
//! Floor 4.

use proc_macro2::Ident;
use ratelimit_core::PolicyFault;

use crate::{
    args::{ARGUMENTS, Argument},
    errors::Errors,
};

/// Returns the second of two arguments, if both are written.
pub(crate) fn second<'a>(written: &'a [Ident], one: &str, other: &str) -> Option<&'a Ident> {
    let mut both = written.iter().filter(|name| *name == one || *name == other);
    let first = both.next()?;
    // One argument may be written twice, which is an error of its own.
    both.find(|name| *name != first)
}

/// Validates the names of the arguments, in the order in which they are written. The error of an
/// exclusion is at the second one.
pub(crate) fn validate(written: &[Ident], errors: &mut Errors) {
    let is_written = |argument: &str| written.iter().any(|it| it == argument);
    // With a `tier` there is a window, and `period` and `threshold` go into it.
    let no_whole_window =
        is_written("concurrency") && !is_written("tier") && validate_window(written, errors);
    for Argument { name, of_policy, of_window, excludes, faults, needs, .. } in ARGUMENTS {
        for (other, reason) in *excludes {
            if let Some(second) = second(written, name, other) {
                errors.at(second, format!("{reason}; remove `{name}` or `{other}`"));
            }
        }
        if let Some((others, fault)) = faults {
            for other in *others {
                if let Some(second) = second(written, name, other) {
                    errors.at(second, fault(other));
                }
            }
        }
        if *of_policy && let Some(second) = second(written, "policy", name) {
            let message = format!(
                "`{name}` is part of a policy, and `policy` names a whole one; write it there, or \
                 remove `policy`"
            );
            errors.at(second, message);
        }
        if *of_window
            && no_whole_window
            && let Some(second) = second(written, "concurrency", name)
        {
            errors.at(second, PolicyFault::NothingToCount { argument: name });
        }
        if let Some((needed, reason)) = needs
            && let Some(argument) = written.iter().find(|it| it == name && !is_written(needed))
        {
            errors.at(argument, format!("`{name}` needs `{needed} = ..`: {reason}"));
        }
    }
}

/// Validates that beside `concurrency` a window is whole. Returns `true` if there is none.
fn validate_window(written: &[Ident], errors: &mut Errors) -> bool {
    let find = |argument: &str| written.iter().find(|it| *it == argument);
    if let (Some(argument), None) | (None, Some(argument)) = (find("period"), find("threshold")) {
        errors.at(
            argument,
            "beside `concurrency`, a window needs both `period` and `threshold`: there is no default",
        );
    }
    find("period").is_none() && find("threshold").is_none()
}
