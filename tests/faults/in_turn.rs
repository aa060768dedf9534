//! The faults of `ci/soak`, for 15 s instead of an hour, break no promise.

use std::process::Command;

#[test]
fn every_fault_under_load_breaks_no_promise() {
    let output = Command::new(env!("CARGO_BIN_EXE_soak")).arg("0.25").output().expect("soak runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}{stderr}");
    let last = stdout.lines().last().expect("a line of figures");
    // Callers were admitted, refused and left without a decision.
    for answer in ["Admitted", "Refused", "DeadlineExceeded", "Disconnected"] {
        assert!(last.contains(answer), "{stdout}");
    }
}
