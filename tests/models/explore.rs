//! Models: every order of calls, replies, losses, crashes, ticks and cancels, through the code that
//! decides.
//!
//! Each file beside this one is a module of `ratelimit-runtime`, whose private code it drives or
//! copies: its first lines name it. Each invariant is one line of `properties`. A field of the
//! model breaks a rule on purpose, and a test sees the invariant fail.

use std::{
    fmt::{self, Debug, Write},
    hash::Hash,
};

use stateright::{Checker, HasDiscoveries, Model};

/// Compares and hashes the states of a model by their text, as the types of the crate are no keys.
macro_rules! compared_by_text {
    ($state:ty) => {
        impl std::hash::Hash for $state {
            fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
                crate::explore::text(self).hash(hasher);
            }
        }

        impl PartialEq for $state {
            fn eq(&self, other: &Self) -> bool {
                crate::explore::text(self) == crate::explore::text(other)
            }
        }
    };
}
pub(crate) use compared_by_text;

/// Returns the text of a state, with numbers by first appearance in place of its random ids. Those
/// have nine digits and more.
pub(crate) fn text(state: &impl Debug) -> String {
    let mut named = NamedText::default();
    write!(named, "{state:?}").expect("memory");
    named.text
}

/// A text whose random ids are numbered. A number is written as one piece.
#[derive(Default)]
struct NamedText {
    text: String,
    ids: Vec<String>,
}

impl Write for NamedText {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        // The length first: most pieces are shorter.
        if piece.len() < 9 || !piece.bytes().all(|it| it.is_ascii_digit()) {
            self.text.push_str(piece);
            return Ok(());
        }
        let known = self.ids.iter().position(|id| id == piece).unwrap_or(self.ids.len());
        if known == self.ids.len() {
            self.ids.push(piece.to_owned());
        }
        write!(self.text, "#{known}")
    }
}

/// A model whose states can be explored.
pub(crate) trait Explored:
    Model<
        State: Clone + Debug + Hash + PartialEq + Send + Sync,
        Action: Clone + Debug + PartialEq + Send + Sync,
    > + Send
    + Sync
    + 'static
{
}

impl<M> Explored for M where
    M: Model<
            State: Clone + Debug + Hash + PartialEq + Send + Sync,
            Action: Clone + Debug + PartialEq + Send + Sync,
        > + Send
        + Sync
        + 'static
{
}

/// Explores all sequences of so many steps, and compares the number of states with the table in
/// `guide/failures.md`.
pub(crate) fn assert_holds(name: &str, steps: usize, model: impl Explored) {
    let checked = model.checker().target_max_depth(steps).spawn_bfs().join();
    checked.assert_properties();
    let states = checked.unique_state_count();
    println!("model of {name}: {states} states in {steps} steps");
    let page = include_str!("../../ratelimit-runtime/src/guide/failures.md");
    let row = page.lines().find(|line| line.starts_with(&format!("| {name}")));
    let (thousands, rest) = (states / 1_000, states % 1_000);
    let end = format!(" | {steps} | {thousands} {rest:03} |");
    assert!(row.is_some_and(|row| row.ends_with(&end)), "the table has not{end} for {name}");
}

/// Explores until this invariant fails, and fails if it does not within so many steps.
pub(crate) fn assert_breaks(invariant: &'static str, steps: usize, model: impl Explored) {
    let only = HasDiscoveries::AnyOf([invariant].into());
    let checker = model.checker().target_max_depth(steps).finish_when(only);
    checker.spawn_bfs().join().assert_any_discovery(invariant);
}
