//! Tests of process-wide state: the installed limiter, the recorder of metrics.

use std::{
    env,
    process::{Command, Output},
};

/// The variable that names the test in its own process.
const TEST: &str = "RATELIMIT_TEST_IN_ITS_OWN_PROCESS";

/// Runs the test of this path in a process of its own, unless this is that process. Returns `true`
/// if the test is done.
///
/// # Panics
/// If the test fails there, or its path is another.
#[must_use = "the test goes on in the process of its own"]
pub fn ran_in_own_process(test: &str) -> bool {
    ran_in_own_process_with(test, &[])
}

/// Runs a test as [`ran_in_own_process`] does, with these variables in the environment of its
/// process.
///
/// # Panics
/// As [`ran_in_own_process`].
#[must_use = "the test goes on in the process of its own"]
pub fn ran_in_own_process_with(test: &str, environment: &[(&str, &str)]) -> bool {
    if env::var_os(TEST).is_some_and(|named| named == test) {
        return false;
    }
    let mut process = Command::new(env::current_exe().expect("the program of the tests"));
    process.args(["--exact", test, "--nocapture"]).env(TEST, test);
    process.envs(environment.iter().copied());
    let Output { status, stdout, stderr } = process.output().expect("the program starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success() && stdout.contains("running 1 test"), "{test}: {stdout}{stderr}");
    true
}
