//! All processes that share a Redis share each limit.

use std::process::{Child, Command, Stdio};

use harness::RedisServer;

const KEY: &str = "ratelimit:sliding_window:load/one";

/// Starts a process of 32 tasks with 50 calls each.
fn load(server: &RedisServer, threshold: u32) -> Child {
    Command::new(env!("CARGO_BIN_EXE_load"))
        .args([&server.url(), "32", "50", &threshold.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the load starts")
}

/// Returns the number of its admitted calls.
fn admitted(process: Child) -> u32 {
    let output = process.wait_with_output().expect("the load ends");
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a count")
}

#[test]
fn two_processes_of_32_tasks_admit_exactly_the_threshold() {
    let server = RedisServer::start();
    let both = [load(&server, 100), load(&server, 100)];
    assert_eq!(both.map(admitted).iter().sum::<u32>(), 100);
    assert_eq!(server.command::<u32>(&format!("ZCOUNT {KEY} 0 +inf")), 100);
}

#[test]
fn each_process_of_a_rolling_deploy_keeps_its_own_threshold_on_the_same_count() {
    let server = RedisServer::start();
    let (old, new) = (load(&server, 100), load(&server, 60));
    let (old, new) = (admitted(old), admitted(new));
    // The higher threshold is reached, and the lower one admits none above itself.
    assert_eq!(old + new, 100);
    assert!(new <= 60, "{new}");
    // None of the lower one is admitted any more, now that there are more.
    assert_eq!(admitted(load(&server, 60)), 0);
    assert_eq!(server.command::<u32>(&format!("ZCOUNT {KEY} 0 +inf")), 100);
    // A raised threshold goes on with the same count.
    assert_eq!(admitted(load(&server, 130)), 30);
}
