//! All features mixed at random over four processes under faults, as by `ci/histories`, break no promise.

use std::{env, process::Command};

/// The seed of the first round. The second one has the next.
const SEED: &str = "27";

/// Two rounds, of some 13 s each. `HISTORIES_MIX` and `HISTORIES_SEED` are those of `ci/histories`.
#[test]
fn lines_leases_permits_overrides_resets_and_refunds_keep_their_promises_together() {
    let setting = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let arguments =
        ["0.2".to_owned(), setting("HISTORIES_MIX", "all"), setting("HISTORIES_SEED", SEED)];
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
