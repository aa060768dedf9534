//! A clock that jumps, for one server.

use std::{fs, os::unix::fs::FileExt, path::PathBuf, process::Command, sync::OnceLock};

use tempfile::TempDir;

use super::{RedisServer, wait_for, wall_clock};

/// The wall clock of the servers that are started with it; ahead of the machine's or behind it.
#[derive(Debug)]
pub struct Clock {
    offset: PathBuf,
    _directory: TempDir,
}

impl Clock {
    /// Returns a clock in step with the machine's.
    pub fn new() -> Self {
        let directory = TempDir::new().expect("a directory for the clock");
        let offset = directory.path().join("offset");
        fs::write(&offset, 0_i64.to_ne_bytes()).expect("a file for the offset");
        Self { offset, _directory: directory }
    }

    /// Starts a server that uses this clock.
    pub fn server(&self, arguments: &[&str]) -> RedisServer {
        let environment = self.environment();
        let environment = environment.each_ref().map(|(name, value)| (*name, &**value));
        RedisServer::with_environment(arguments, &environment)
    }

    /// The environment of other programs that use this clock.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        let path = |path: &PathBuf| path.to_str().expect("a path in UTF-8").to_owned();
        [("LD_PRELOAD", path(library())), ("CLOCK_OFFSET", path(&self.offset))]
    }

    /// Sets the clock, and waits until this server tells its time: some read it only now and then.
    pub fn step(&self, server: &RedisServer, ahead: i64) {
        self.set_ahead(ahead);
        let expected = |seconds: i64| {
            let here = i64::try_from(wall_clock() / 1_000_000).expect("a time");
            (seconds - here - ahead / 1_000).abs() <= 1
        };
        wait_for("the clock of the server", || {
            let (seconds, _): (i64, i64) = server.command("TIME");
            expected(seconds).then_some(())
        });
    }

    /// Sets how far the clock is ahead of the machine's, in milliseconds; negative for behind.
    pub fn set_ahead(&self, millis: i64) {
        let file = fs::File::options().write(true).open(&self.offset).expect("the clock's file");
        let micros = millis * 1_000;
        file.write_all_at(&micros.to_ne_bytes(), 0).expect("the clock is set");
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// The library that puts the clock in place of the system's, compiled once.
fn library() -> &'static PathBuf {
    static LIBRARY: OnceLock<(PathBuf, TempDir)> = OnceLock::new();
    let (path, _) = LIBRARY.get_or_init(|| {
        let directory = TempDir::new().expect("a directory for the library");
        let path = directory.path().join("clock.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/harness/clock.c");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([path.as_os_str(), source.as_ref()])
            .status();
        assert!(compiled.expect("a C compiler, as Rust's linker needs it").success());
        (path, directory)
    });
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_uses_the_clock_of_its_launch() {
        let clock = Clock::new();
        let server = clock.server(&[]);
        for ahead in [0, 600_000, -3_600_000] {
            clock.step(&server, ahead);
        }
    }
}
