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

/// Validates the names of the arguments, in the order in which they are written. The error of an
/// exclusion is at the second one.
pub(crate) fn validate(written: &[Ident], errors: &mut Errors) {
    for (index, second) in written.iter().enumerate() {
        let exclusion = EXCLUSIONS.iter().find_map(|(one, other, reason)| {
            let first = match second {
                second if second == one => other,
                second if second == other => one,
                _ => return None,
            };
            written[..index].iter().any(|it| it == first).then_some((first, reason))
        });
        if let Some((first, reason)) = exclusion {
            errors.at(second, format!("{reason}; remove `{first}` or `{second}`"));
        }
        let need = NEEDS.iter().find(|(name, ..)| second == name);
        let Some((name, needed, reason)) = need else { continue };
        if written.iter().all(|it| it != needed) {
            errors.at(second, format!("`{name}` needs `{needed} = ..`: {reason}"));
        }
    }
}
