//! The nearest name of a limit to one that was misspelt.

use std::collections::BTreeSet;

/// The most letters by which a name may differ from the one that was meant.
const MOST_EDITS: usize = 3;

/// Returns the name of the limit that was probably meant: one that ends with the same path, or the
/// one with the fewest other letters, if there are few.
pub(crate) fn nearest<'a>(written: &str, names: &BTreeSet<&'a str>) -> Option<&'a str> {
    let is_tail = |name: &&str| name.strip_suffix(written).is_some_and(|path| path.ends_with("::"));
    let by_tail = names.iter().copied().find(is_tail);
    by_tail.or_else(|| {
        let letters = Letters::of(written);
        let most = letters.count.div_ceil(3).min(MOST_EDITS);
        let near = names.iter().filter(|name| letters.are_within(most, &Letters::of(name)));
        let distances = near.map(|name| (strsim::damerau_levenshtein(written, name), *name));
        distances.min().filter(|(distance, _)| *distance <= most).map(|(_, name)| name)
    })
}

/// The number of letters in a name, and which ones, by their last six bits.
struct Letters {
    count: usize,
    set: u64,
}

impl Letters {
    fn of(name: &str) -> Self {
        let none = Self { count: 0, set: 0 };
        name.chars().fold(none, |Self { count, set }, letter| Self {
            count: count + 1,
            set: set | 1 << (u32::from(letter) % 64),
        })
    }

    /// Returns `false` if names with these letters differ by more edits: one edit adds a letter,
    /// removes one, or does both. Few names are left whose distance is computed, in the time of the
    /// product of both lengths.
    fn are_within(&self, edits: usize, other: &Self) -> bool {
        self.count.abs_diff(other.count) <= edits
            && (self.set ^ other.set).count_ones() as usize <= 2 * edits
    }
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

    #[test]
    fn a_name_is_near_up_to_three_edits() {
        let names = ["shop::handlers::checkout"];
        let nearest = |written| nearest(written, &names.into());
        assert_eq!(nearest("shop::handler::chekcuot"), Some(names[0]));
        assert_eq!(nearest("shop::handler::chekcuott"), None);
        assert_eq!(nearest("shop::hxndlxrs::chxckout"), Some(names[0]));
        assert_eq!(nearest("shop::hxndlxrs::chxckxut"), None);
        assert_eq!(nearest("shop::hándlérs::chéckout"), Some(names[0]));
    }
}
