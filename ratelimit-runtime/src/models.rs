//! Models: every order of calls, replies, losses, crashes, ticks and cancels, through the code that decides.
//!
//! Each file `model.rs` names the code that it drives or copies. Each invariant is one line of `properties`. A
//! field of the model breaks a rule on purpose, and a test sees the invariant fail.

use std::{fmt::Debug, hash::Hash};

use stateright::{Checker, Model};

/// Compares and hashes the states of a model by their text, as the types of the crate are no keys.
macro_rules! compared_by_text {
    ($state:ty) => {
        impl std::hash::Hash for $state {
            fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
                format!("{self:?}").hash(hasher);
            }
        }

        impl PartialEq for $state {
            fn eq(&self, other: &Self) -> bool {
                format!("{self:?}") == format!("{other:?}")
            }
        }
    };
}
pub(crate) use compared_by_text;

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

/// Explores all sequences of so many steps, and prints the number of states for the table in `guide/failures.md`.
pub(crate) fn assert_holds(name: &str, steps: usize, model: impl Explored) {
    let checked = model.checker().target_max_depth(steps).spawn_bfs().join();
    println!("model of {name}: {} states in {steps} steps", checked.unique_state_count());
    checked.assert_properties();
}

/// Explores until this invariant fails, and fails if it does not within so many steps.
pub(crate) fn assert_breaks(invariant: &'static str, steps: usize, model: impl Explored) {
    let checked = model.checker().target_max_depth(steps).spawn_bfs().join();
    checked.assert_any_discovery(invariant);
}
