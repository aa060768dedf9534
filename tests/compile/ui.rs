//! Valid programs compile and run, and each mistake is a compile error at its token.
//!
//! The compiler reads the programs in `ui` directly, with the crates of this test's own build. No crate is
//! built twice.

use std::{
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    thread,
};

use harness::{PACKAGES, ROOT, cargo};
use proc_macro2::TokenStream;

/// The crates that the programs name.
const CRATES: [&str; 5] = ["actix_web", "async_trait", "axum", "ratelimit_runtime", "tonic"];

#[test]
fn valid_handlers_compile_and_mistakes_are_errors_at_their_token() {
    let compiler = Compiler::new();
    let programs: Vec<_> = ["pass", "fail"].into_iter().flat_map(programs).collect();
    assert!(programs.len() > 10, "{programs:?}");
    let (rest, wrong) = (Mutex::new(programs.iter()), Mutex::new(String::new()));
    let next = || rest.lock().unwrap().next();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(program) = next() {
                    let checked = if program.starts_with("tests/compile/ui/pass") {
                        compiler.passes(program)
                    } else {
                        compiler.fails(program)
                    };
                    if let Err(why) = checked {
                        let _ = writeln!(wrong.lock().unwrap(), "{}: {why}", program.display());
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{wrong}");
}

/// A crate that re-exports the runtime, and a macro of it around the attribute.
const WRAPPER: &str = "
    #[doc(hidden)]
    pub use ratelimit_runtime as limits;

    #[macro_export]
    macro_rules! limited {
        ($name:ident($user:ident), $threshold:expr, $policy:path) => {
            #[$crate::limits::rate_limit(crate = $crate::limits, name = \"brief\", key = ($user, 1), threshold = $threshold)]
            #[$crate::limits::rate_limit(crate = $crate::limits, policy = $policy, key = $user)]
            async fn $name($user: u32) -> Result<(), $crate::limits::RateLimitError> {
                Ok(())
            }
        };
    }
";

/// A program that has the runtime by that crate alone.
const WRAPPED: &str = "
    #![deny(warnings, unused_qualifications)]

    use wrapper::limits::Policy;

    const DAILY: Policy = Policy::fixed_window(\"daily\", std::time::Duration::from_secs(86_400), 9);

    wrapper::limited!(call(user), if user > 0 { 5_u32 } else { 1 }, DAILY);

    fn main() {
        drop(call(1));
    }
";

/// `$crate` is the crate of the macro, also at the place of its caller's tokens.
#[test]
fn a_macro_of_another_crate_may_contain_the_attribute() {
    let compiler = Compiler::new();
    let metadata = |name, code, options: &[&str]| {
        let path = compiler.scratch(name);
        fs::write(&path, code).expect("the program is written");
        let written = compiler.compile_with(options, &path, "metadata");
        written.unwrap_or_else(|errors| panic!("{errors}"))
    };
    let library = metadata("wrapper", WRAPPER, &["--crate-type=lib"]);
    // The compiler knows a library by its name.
    let named = library.with_file_name("libwrapper.rmeta");
    fs::rename(library, &named).expect("the library is renamed");
    metadata("wrapped", WRAPPED, &[&format!("--extern=wrapper={}", named.display())]);
}

/// The programs in a folder of `ui`, from the workspace.
fn programs(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new("tests/compile/ui").join(folder);
    let entries = fs::read_dir(ROOT.join(&folder)).expect("the programs");
    let paths = entries.map(|entry| folder.join(entry.expect("a program").file_name()));
    paths.filter(|path| path.extension().is_some_and(|it| it == "rs")).collect()
}

/// The compiler, and what it needs to find the crates.
pub(crate) struct Compiler {
    options: Vec<String>,
    output: tempfile::TempDir,
}

impl Compiler {
    pub(crate) fn new() -> Self {
        // The crates are built already; cargo names the files.
        let mut command = cargo();
        command.args(["test", "--no-run", "--quiet", "--message-format=json"]).args(PACKAGES);
        let built = command.args(["--test", "compile"]).output().expect("cargo runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let mut options: Vec<String> =
            ["--edition=2024", "--color=never", "--verbose", "-Adead_code", "-Cdebuginfo=0"]
                .map(str::to_owned)
                .into();
        for line in String::from_utf8_lossy(&built.stdout).lines() {
            let artifact: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let Some(name) = artifact["target"]["name"].as_str().filter(|it| CRATES.contains(it))
            else {
                continue;
            };
            // Programs are linked with the first; a second one contains types only.
            let file = artifact["filenames"][0].as_str().expect("a file");
            let directory = Path::new(file).parent().expect("it is in a directory");
            options.push(format!("--extern={name}={file}"));
            options.push(format!("-Ldependency={}", directory.display()));
        }
        for name in CRATES {
            let found = options.iter().filter(|it| it.starts_with(&format!("--extern={name}=")));
            assert_eq!(found.count(), 1, "{name} in {options:?}");
        }
        Self { options, output: tempfile::tempdir().expect("a directory") }
    }

    /// Returns the path of a program that a test writes.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.output.path().join(name).with_extension("rs")
    }

    /// Compiles a program to `emit`. Returns the file, or the compiler's errors.
    pub(crate) fn compile(&self, program: &Path, emit: &str) -> Result<PathBuf, String> {
        self.compile_with(&[], program, emit)
    }

    fn compile_with(
        &self,
        options: &[&str],
        program: &Path,
        emit: &str,
    ) -> Result<PathBuf, String> {
        let name = program.file_stem().expect("a name").to_string_lossy();
        let output = self.output.path().join(&*name);
        // The compiler beside the cargo that built this.
        let mut compiler = Command::new(Path::new(env!("CARGO")).with_file_name("rustc"));
        compiler
            .args(&self.options)
            .args(options)
            .arg(format!("--emit={emit}"))
            .arg("-o")
            .arg(&output);
        let done = compiler.arg(program).current_dir(&*ROOT).output().expect("the compiler runs");
        let errors = String::from_utf8_lossy(&done.stderr).into_owned();
        if done.status.success() { Ok(output) } else { Err(errors) }
    }

    /// Compiles a program and runs it.
    fn passes(&self, program: &Path) -> Result<(), String> {
        let executable = self.compile(program, "link")?;
        let done = Command::new(executable).output().expect("the program starts");
        if done.status.success() {
            return Ok(());
        }
        Err(format!("{}{}", done.status, String::from_utf8_lossy(&done.stderr)))
    }

    /// Compares the errors of a program with the reviewed ones; `UPDATE_ERRORS=1` rewrites these.
    fn fails(&self, program: &Path) -> Result<(), String> {
        let Err(errors) = self.compile(program, "metadata") else {
            return Err("this should not compile".to_owned());
        };
        let errors = normalized(&errors);
        let reviewed = ROOT.join(program).with_extension("stderr");
        if env::var_os("UPDATE_ERRORS").is_some() {
            fs::write(&reviewed, &errors).expect("the errors are written");
        }
        let reviewed = fs::read_to_string(&reviewed).unwrap_or_default();
        if errors != reviewed {
            return Err(format!("\n{errors}\ninstead of\n\n{reviewed}"));
        }
        self.fails_alike_on_one_line(program)
    }

    /// Compares the errors of a program with those of the same tokens on one line.
    fn fails_alike_on_one_line(&self, program: &Path) -> Result<(), String> {
        let code = fs::read_to_string(ROOT.join(program)).expect("the program");
        let code = code.parse::<TokenStream>().expect("Rust").to_string();
        let name = program.file_stem().expect("a name").to_string_lossy();
        let on_one_line = self.scratch(&format!("{name}_on_one_line"));
        fs::write(&on_one_line, code).expect("the program is written");
        let (formatted, on_one_line) = (self.errors(program), self.errors(&on_one_line));
        if formatted == on_one_line {
            return Ok(());
        }
        let only = |these: &[(String, Vec<String>)], those: &[(String, Vec<String>)]| {
            these.iter().filter(|it| !those.contains(it)).cloned().collect::<Vec<_>>()
        };
        let (here, there) = (only(&on_one_line, &formatted), only(&formatted, &on_one_line));
        Err(format!("on one line {here:#?} instead of {there:#?}"))
    }

    /// Returns the errors of a program: each message, and the tokens to which it points.
    fn errors(&self, program: &Path) -> Vec<(String, Vec<String>)> {
        let compiled = self.compile_with(&["--error-format=json"], program, "metadata");
        let code = fs::read_to_string(ROOT.join(program)).expect("the program");
        let mut errors = Vec::new();
        for line in compiled.expect_err("it is wrong").lines() {
            let error: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let tokens = |span: &serde_json::Value| {
                let [from, to] = ["byte_start", "byte_end"].map(|end| {
                    usize::try_from(span[end].as_u64().expect("a place")).expect("a place")
                });
                code[from..to].split_whitespace().collect::<String>()
            };
            let spans = error["spans"].as_array().expect("places").iter();
            let spans = spans.filter(|span| {
                span["is_primary"] == true
                    && program.ends_with(span["file_name"].as_str().expect("a file"))
            });
            let places = spans.map(tokens).collect();
            errors.push((error["message"].as_str().expect("a message").to_owned(), places));
        }
        errors.sort();
        errors
    }
}

/// Returns errors without the runtime's line numbers and without the count of errors.
fn normalized(errors: &str) -> String {
    let end = errors.find("\nerror: aborting due to").expect("the number of errors is the end");
    errors[..end].split_inclusive("\n\n").map(without_lines_of_the_runtime).collect()
}

/// Returns an error without the runtime's line numbers, indented as without them.
fn without_lines_of_the_runtime(error: &str) -> String {
    let mut lines = Vec::new();
    let mut is_of_runtime = false;
    let (mut width, mut own_width) = (0, 0);
    for line in error.lines() {
        let trimmed = line.trim_start();
        let code = trimmed.trim_start_matches(|it: char| it.is_ascii_digit());
        if trimmed.starts_with("--> ") || trimmed.starts_with("::: ") {
            is_of_runtime = trimmed[4..].starts_with("ratelimit-runtime/");
            let file = line.find(".rs:").filter(|_| is_of_runtime).map(|end| &line[..end + 3]);
            lines.push(file.unwrap_or(line).to_owned());
            continue;
        }
        let margin = line.len() - code.len();
        if code.starts_with(" |") && trimmed != code {
            width = width.max(margin);
            if !is_of_runtime {
                own_width = own_width.max(margin - (line.len() - trimmed.len()));
            }
        } else if !trimmed.starts_with(['|', '.']) {
            is_of_runtime = false;
        }
        let line = if is_of_runtime { " ".repeat(margin) + code } else { line.to_owned() };
        lines.push(line);
    }
    let excess = " ".repeat(width - own_width);
    let mut text = String::new();
    for line in &lines {
        text.push_str(line.strip_prefix(&excess).unwrap_or(line));
        text.push('\n');
    }
    text
}
