//! A program without any limit is one whose library is not linked: what compares its limits fails.

use std::{env, fs, panic::catch_unwind, process::Command};

use harness::ran_in_own_process;
use ratelimit_runtime::{lock, testing};

fn assert_fails(test: impl FnOnce() + std::panic::UnwindSafe) {
    let panic = catch_unwind(test).expect_err("there is no limit");
    let message = panic.downcast_ref::<String>().cloned();
    let message = message.or_else(|| Some((*panic.downcast_ref::<&str>()?).to_owned())).unwrap();
    assert!(message.contains("name the library that has them: `use shop as _;`"), "{message}");
}

#[test]
fn coverage_of_no_limit_is_none() {
    if !ran_in_own_process("coverage_of_no_limit_is_none") {
        assert_fails(testing::assert_covered);
        assert_fails(|| testing::assert_covered_but(&["greet"]));
    }
}

#[test]
fn no_limits_are_equal_to_no_file_and_are_not_written() {
    const NAME: &str = "no_limits_are_equal_to_no_file_and_are_not_written";
    assert_fails(|| lock!("testing/no_such_file.lock"));
    if env::var_os("UPDATE_LIMITS").is_none() {
        let mut process = Command::new(env::current_exe().unwrap());
        let run = process.args(["--exact", NAME]).env("UPDATE_LIMITS", "1").status().unwrap();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testing/no_such_file.lock");
        assert!(run.success() && !fs::exists(path).unwrap());
    }
}
