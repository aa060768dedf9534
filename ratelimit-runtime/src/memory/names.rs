//! The names of limits as thin references, so that an entry needs eight bytes for one.

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::policy::PolicyName;

/// Returns the one reference of this process to a name. It is never freed: names are part of the
/// program, and so their number is bounded.
pub(super) fn interned(name: &'static str) -> &'static PolicyName {
    static NAMES: Mutex<Option<HashMap<&'static str, &'static PolicyName>>> = Mutex::new(None);
    let mut names = NAMES.lock();
    let names = names.get_or_insert_default();
    names.entry(name).or_insert_with(|| Box::leak(Box::new(PolicyName::new(name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_one() {
        let copied: &'static str = String::from("a").leak();
        assert!(std::ptr::eq(interned("a"), interned(copied)));
        assert_eq!((interned("a").text(), interned("b").text()), ("a", "b"));
    }
}
