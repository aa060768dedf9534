//! One limit holds for all processes that share a Redis.

use std::process::{Command, Stdio};

use harness::RedisServer;

#[test]
fn two_processes_of_32_tasks_admit_exactly_the_threshold() {
    let server = RedisServer::start();
    let hammers: Vec<_> = (0..2)
        .map(|_| {
            Command::new(env!("CARGO_BIN_EXE_hammer"))
                .args([&server.url(), "32", "50"])
                .stdout(Stdio::piped())
                .spawn()
                .expect("hammer starts")
        })
        .collect();
    let admitted: u32 = hammers
        .into_iter()
        .map(|hammer| {
            let output = hammer.wait_with_output().expect("hammer ends");
            assert!(output.status.success());
            String::from_utf8_lossy(&output.stdout).trim().parse::<u32>().expect("a count")
        })
        .sum();
    assert_eq!(admitted, 100);
    let key = "ratelimit:sliding_window:hammered/one";
    assert_eq!(server.command::<u32>(&format!("ZCARD {key}")), 100);
}
