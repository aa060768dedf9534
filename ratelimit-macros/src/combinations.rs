//! Arguments that exclude each other, or need one another.

use proc_macro2::Ident;

use crate::errors::Errors;

/// Pairs of arguments that exclude each other, with the reason.
const EXCLUSIONS: [(&str, &str, &str); 3] = [
    (
        "fallible",
        "otherwise",
        "`otherwise` returns a value of the written type, which needs no `fallible`",
    ),
    ("fallible", "soft", "with `soft` no call is refused, which needs no `fallible`"),
    ("soft", "otherwise", "with `soft` no call is refused, so that `otherwise` is never returned"),
];

/// Arguments that need another one, with the reason.
const NEEDS: [(&str, &str, &str); 1] =
    [("soft", "decision", "the body reads in it whether the limit refused the call")];

/// The arguments of a policy, which one that is named by its path has already.
const OF_POLICY: [&str; 7] =
    ["period", "threshold", "tier", "algorithm", "burst", "name", "count_rejected"];

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
    for (name, needed, reason) in NEEDS {
        let is_written = |argument: &str| written.iter().any(|it| it == argument);
        if let Some(argument) = written.iter().find(|it| *it == name && !is_written(needed)) {
            errors.at(argument, format!("`{name}` needs `{needed} = ..`: {reason}"));
        }
    }
}
