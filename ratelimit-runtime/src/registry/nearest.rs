//! The nearest name of a limit to one that was misspelt.

use std::collections::BTreeSet;

/// Returns the name of the limit that was probably meant: one that ends with the same path, or the one with the fewest
/// other letters, if there are few.
pub(crate) fn nearest<'a>(written: &str, names: &BTreeSet<&'a str>) -> Option<&'a str> {
    let is_tail = |name: &&str| name.strip_suffix(written).is_some_and(|path| path.ends_with("::"));
    let by_tail = names.iter().copied().find(is_tail);
    by_tail.or_else(|| {
        let distances =
            names.iter().map(|name| (strsim::damerau_levenshtein(written, name), *name));
        let (distance, name) = distances.min()?;
        (distance <= written.chars().count().div_ceil(3)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_was_meant_is_found_and_no_other() {
        let names = ["app::reply", "checkout", "search"];
        let nearest = |written| nearest(written, &names.into());
        assert_eq!(nearest("chekout"), Some("checkout"));
        assert_eq!(nearest("reply"), Some("app::reply"));
        assert_eq!(nearest("serach"), Some("search"));
        assert_eq!(nearest("mail"), None);
        assert_eq!(nearest(""), None);
    }
}
