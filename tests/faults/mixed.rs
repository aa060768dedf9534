//! Features mixed at random over four processes, some of which are killed or stopped, break no promise, also
//! while Redis cannot be reached now and then, while slots move, and after a primary is killed. `ci/histories` mixes
//! them for longer.

use std::{env, process::Command};

/// The seed of the first round.
const SEED: &str = "27";

/// Runs one round. `HISTORIES_MIX` and `HISTORIES_SEED` are those of `ci/histories`.
fn keeps_its_promises(mix: &str) {
    let setting = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let arguments =
        ["0".to_owned(), setting("HISTORIES_MIX", mix), setting("HISTORIES_SEED", SEED)];
    let program = env!("CARGO_BIN_EXE_mixed");
    let output = Command::new(program).args(arguments).output().expect("the program runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}{stderr}");
    // Calls were admitted at once and after a wait, refused and given up, shut out and warned of.
    for answer in
        [" admitted,", " admitted after a wait", " refused", " left", " blocks", " warnings"]
    {
        assert!(stdout.contains(answer), "{stdout}");
    }
    println!("{stdout}");
}

#[test]
fn all_features_together_keep_their_promises() {
    keeps_its_promises("all");
}

#[test]
fn all_features_together_keep_their_promises_on_a_cluster_that_changes() {
    keeps_its_promises("all,reshard,failover");
}
