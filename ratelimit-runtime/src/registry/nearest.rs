//! The nearest name of a limit to one that was misspelt.

/// Returns the name that was probably meant: one that ends with the same path, or the one with the fewest
/// other letters, if there are few.
pub(super) fn nearest<'a>(
    written: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Option<&'a str> {
    let is_tail = |name: &&str| name.strip_suffix(written).is_some_and(|path| path.ends_with("::"));
    let by_tail = names.clone().find(is_tail);
    by_tail.or_else(|| {
        let distances = names.map(|name| (distance(written, name), name));
        let (distance, name) = distances.min()?;
        (distance <= written.chars().count().div_ceil(3)).then_some(name)
    })
}

/// Returns the number of letters to add, remove or change.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, second) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *second);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_was_meant_is_found_and_no_other() {
        let names = ["app::reply", "checkout", "search"];
        let nearest = |written| nearest(written, names.into_iter());
        assert_eq!(nearest("chekout"), Some("checkout"));
        assert_eq!(nearest("reply"), Some("app::reply"));
        assert_eq!(nearest("serach"), Some("search"));
        assert_eq!(nearest("mail"), None);
        assert_eq!(nearest(""), None);
    }
}
