//! Programs of this workspace, run as their readers would run them.

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::LazyLock,
};

/// A program that runs until it is dropped.
#[derive(Debug)]
pub struct Running {
    process: Child,
    first_line: String,
    /// Open, so that the program may print more.
    _output: BufReader<ChildStdout>,
}

impl Running {
    /// Starts the program, and waits for the first line it prints.
    pub fn start(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut first_line = String::new();
        let mut output = BufReader::new(process.stdout.take().expect("its output is piped"));
        output.read_line(&mut first_line).expect("it prints a line");
        Self { process, first_line: first_line.trim_end().to_owned(), _output: output }
    }

    /// The first line it printed.
    pub fn first_line(&self) -> &str {
        &self.first_line
    }

    /// Ends the program at once, as `kill -9` does.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The workspace.
pub static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("it is in a directory").to_owned()
});

/// An example, built with the features that the tests are built with.
pub struct Example {
    /// The package, as `cargo run -p` takes it.
    pub package: String,
    /// Its source file.
    pub source: PathBuf,
    program: PathBuf,
}

impl Example {
    /// Returns the command that runs it.
    #[must_use]
    pub fn command(&self, name: &str) -> String {
        let options = match (name, self.package.as_str()) {
            ("algorithms", "examples") => "--features calendar ".to_owned(),
            ("replay", "examples") => "--features replay ".to_owned(),
            ("fleet" | "overrides", "examples") => "--features overrides ".to_owned(),
            (_, "examples") => String::new(),
            (_, package) => format!("-p {package} "),
        };
        format!("cargo run {options}--example {name}")
    }
}

/// The packages that `tests/run` builds. Others would have other features built.
pub const PACKAGES: [&str; 4] = [
    "--workspace",
    "--exclude=ratelimit-abuse",
    "--exclude=ratelimit-benches",
    "--exclude=ratelimit-migration",
];

/// All examples, by their names.
pub static EXAMPLES: LazyLock<BTreeMap<String, Example>> = LazyLock::new(|| {
    let mut build = cargo();
    build.args(["build", "--quiet", "--examples", "--message-format=json"]).args(PACKAGES);
    build
        .args(["--features", "examples/calendar,examples/overrides,examples/replay"])
        .stderr(Stdio::inherit());
    let output = build.output().expect("cargo runs");
    assert!(output.status.success(), "the examples do not build");
    output.stdout.lines().filter_map(|line| read_artifact(&line.ok()?)).collect()
});

/// An example in what `cargo build` prints of each artifact.
fn read_artifact(line: &str) -> Option<(String, Example)> {
    let artifact: serde_json::Value = serde_json::from_str(line).ok()?;
    let target = &artifact["target"];
    let directory = Path::new(artifact["manifest_path"].as_str()?).parent()?;
    let package = match directory.strip_prefix(ROOT.join("examples")).ok()?.to_str()? {
        "" => "examples".to_owned(),
        folder => format!("examples-{}", folder.replace('_', "-")),
    };
    let example = Example {
        package,
        source: target["src_path"].as_str()?.into(),
        program: artifact["executable"].as_str()?.into(),
    };
    Some((target["name"].as_str()?.to_owned(), example))
}

/// Runs an example, from the workspace's root.
pub fn example(name: &str) -> Command {
    let mut command = Command::new(&EXAMPLES[name].program);
    command.current_dir(&*ROOT).env_remove("RATELIMIT_URL");
    command
}

/// Runs cargo as a reader would, from the workspace's root.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(&*ROOT).env_remove("RATELIMIT_URL");
    // The cargo of this test sets them. The build script of `ring` reads them, and other values
    // would recompile everything that depends on it, the runtime too.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name == "OUT_DIR"
            || name.starts_with("CARGO_PKG_")
            || name.starts_with("CARGO_MANIFEST_")
        {
            cargo.env_remove(&*name);
        }
    }
    cargo
}
