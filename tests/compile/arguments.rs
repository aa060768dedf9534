//! The manual and the tests have every argument of the table.

use std::{collections::BTreeSet, fs};

use harness::ROOT;

use crate::{args::ARGUMENTS, pairs};

#[test]
fn the_manual_lists_each_argument_of_the_table_and_explains_them_in_its_order() {
    let manual = fs::read_to_string(ROOT.join("ratelimit-runtime/src/attribute.md")).unwrap();
    let names: BTreeSet<_> = ARGUMENTS.iter().map(|argument| argument.name).collect();
    let (_, list) = manual.split_once("| argument | form |").expect("the list");
    let listed: Vec<_> = list
        .lines()
        .skip(1)
        .map_while(|line| line.strip_prefix('|'))
        .filter_map(|row| row.trim_start().strip_prefix("[`"))
        .map(|row| row.split(['`', '(']).next().unwrap())
        .collect();
    assert_eq!((listed.iter().copied().collect(), listed.len()), (names, ARGUMENTS.len()));
    let explained: Vec<_> = manual
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .map(|title| title.trim_matches('`'))
        .filter(|title| listed.contains(title))
        .collect();
    assert_eq!(explained, listed);
}

#[test]
fn every_argument_is_combined_with_every_other() {
    for argument in ARGUMENTS {
        let is_in = |text: &str| {
            let is_name = |at: &char| at.is_alphanumeric() || *at == '_';
            text.split(|at: char| !is_name(&at)).any(|word| word == argument.name)
        };
        assert!(
            pairs::ARGUMENTS.iter().any(|pair| is_in(pair.text)),
            "`{}` is in no pair",
            argument.name
        );
    }
}
