//! Programs of ours, run as their readers would.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Once,
};

/// A program of ours that runs until it is dropped.
#[derive(Debug)]
pub struct Running {
    process: Child,
    first_line: String,
}

impl Running {
    /// Starts the program, and waits for the first line it prints.
    pub fn start(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut first_line = String::new();
        let stdout = process.stdout.take().expect("its output is piped");
        BufReader::new(stdout).read_line(&mut first_line).expect("it prints a line");
        Self { process, first_line: first_line.trim_end().to_owned() }
    }

    /// The first line it printed.
    pub fn first_line(&self) -> &str {
        &self.first_line
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs an example as a reader would: from the workspace's root, by its documented command.
pub fn example(name: &str) -> Command {
    static BUILD: Once = Once::new();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    BUILD.call_once(|| {
        let build = cargo(&root).args(["build", "--quiet", "--examples"]).status();
        assert!(build.expect("cargo runs").success());
    });
    let mut command = cargo(&root);
    command.args(["run", "--quiet", "--example", name, "--"]);
    command
}

fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).env_remove("RATELIMIT_URL");
    cargo
}
