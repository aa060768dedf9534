//! Features mixed at random over four processes, some of which are killed or stopped, break no promise, also
//! while Redis cannot be reached now and then. `ci/histories` mixes them for longer.

use std::{env, process::Command};

/// The seed of the first round.
const SEED: &str = "27";

/// All features and outages but the newest, which `ci/histories` mixes too.
const MIX: &str = "all,-callers,-plans,-keypause";

/// One round of some 13 s, or two. `HISTORIES_MIX` and `HISTORIES_SEED` are those of `ci/histories`.
#[test]
fn lines_leases_permits_overrides_resets_and_refunds_keep_their_promises_together() {
    let setting = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let arguments =
        ["0.2".to_owned(), setting("HISTORIES_MIX", MIX), setting("HISTORIES_SEED", SEED)];
    let program = env!("CARGO_BIN_EXE_mixed");
    let output = Command::new(program).args(arguments).output().expect("the program runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}{stderr}");
    // Calls were admitted at once and after a wait, refused and given up.
    for answer in [" admitted,", " admitted after a wait", " refused", " left"] {
        assert!(stdout.contains(answer), "{stdout}");
    }
    println!("{stdout}");
}
