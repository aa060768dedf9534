//! The first lines of an example: its command, requests, and what they print.

use std::{fs, process::Command};

use crate::commands::{EXAMPLES, Running, example};

/// The texts before a wait. A shorter one fits too: time has passed.
const WAITS: [&str; 7] = [
    "retry-after: ",
    ";t=",
    "retry after ",
    "more after ",
    "back after ",
    "again in ",
    "\"retryAfterMs\":",
];

/// A command and what it prints. Without a command it is what the program prints.
#[derive(Debug, Default)]
struct Promise {
    command: Option<String>,
    output: Vec<String>,
}

/// Returns the blocks of text in the first lines of a source.
fn promises(source: &str) -> Vec<Promise> {
    let (mut promises, mut is_text): (Vec<Promise>, _) = (Vec::new(), false);
    for line in source.lines().map_while(|line| line.strip_prefix("//!")) {
        let line = line.strip_prefix(' ').unwrap_or(line);
        if line.starts_with("```") {
            is_text = line == "```text";
            if is_text {
                promises.push(Promise::default());
            }
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| is_text) {
            promises.push(Promise { command: Some(command.to_owned()), ..Promise::default() });
        } else if let Some(promise) = promises.last_mut().filter(|_| is_text) {
            promise.output.push(line.to_owned());
        }
    }
    for promise in &mut promises {
        // The empty lines before the next command.
        while promise.output.last().is_some_and(String::is_empty) {
            promise.output.pop();
        }
    }
    promises.retain(|promise| promise.command.is_some() || !promise.output.is_empty());
    promises
}

/// Runs an example, and compares what it prints and answers with its first lines.
///
/// # Errors
///
/// The first difference, or that nothing is promised.
pub fn compare_with_first_lines(name: &str, environment: &[(&str, &str)]) -> Result<(), String> {
    let source = fs::read_to_string(&EXAMPLES[name].source).expect("its source");
    let promises = promises(&source);
    let (mut service, directory) = (None, tempfile::tempdir().expect("a directory"));
    for Promise { command, output } in &promises {
        let (what, mut shell) = match command {
            None => (name, example(name)),
            Some(command) => {
                let service = service.get_or_insert_with(|| {
                    Running::start(example(name).arg("127.0.0.1:0").envs(environment.to_vec()))
                });
                (command.as_str(), in_shell(name, command, service.first_line()))
            }
        };
        shell.current_dir(directory.path()).envs(environment.to_vec());
        let printed = shell.output().expect("it runs");
        let printed = String::from_utf8_lossy(&printed.stdout);
        let printed: Vec<_> = printed.trim_end().lines().map(str::trim_end).collect();
        if !is_kept(output, &printed) {
            return Err(format!("{name}: {what}\n{output:#?}\nprinted\n{printed:#?}"));
        }
    }
    if promises.is_empty() { Err(format!("{name} promises nothing")) } else { Ok(()) }
}

/// A command that calls the service at its address, by the example's own program if it is
/// `cargo run`.
fn in_shell(name: &str, command: &str, listening: &str) -> Command {
    let program = EXAMPLES[name].command(name);
    let command = command.replace(&program, &example(name).get_program().to_string_lossy());
    let address = |text: &str| {
        let (_, port) = text.split_once("127.0.0.1:")?;
        let port = port.split(|it: char| !it.is_ascii_digit()).next()?;
        Some(format!("127.0.0.1:{port}"))
    };
    let command = match (address(&command), address(listening)) {
        (Some(documented), Some(actual)) => command.replace(&documented, &actual),
        _ => panic!("{command} has no address, or {listening}"),
    };
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]);
    shell
}

/// `true` if a program printed what is promised. Of an HTTP response the head may have more fields,
/// in any order.
fn is_kept(promised: &[String], printed: &[&str]) -> bool {
    let head = |lines: &[&str]| lines.iter().take_while(|line| !line.is_empty()).count();
    let promised: Vec<_> = promised.iter().map(String::as_str).collect();
    let is_response = promised.first().is_some_and(|line| line.starts_with("HTTP/"));
    let (ours, theirs) = if is_response { (head(&promised), head(printed)) } else { (0, 0) };
    let (fields, body) = promised.split_at(ours);
    let (printed_fields, printed_body) = printed.split_at(theirs);
    fields.iter().all(|field| printed_fields.iter().any(|printed| fits(field, printed)))
        && all_fit(body, printed_body)
}

/// `true` if the printed lines are the promised ones: a line `..` stands for any lines.
fn all_fit(promised: &[&str], printed: &[&str]) -> bool {
    match (promised, printed) {
        ([], []) | ([".."], _) => true,
        (["..", rest @ ..], _) => {
            (0..=printed.len()).any(|skipped| all_fit(rest, &printed[skipped..]))
        }
        ([line, rest @ ..], [first, others @ ..]) => fits(line, first) && all_fit(rest, others),
        _ => false,
    }
}

/// `true` if a printed line is the promised one: `..` stands for any text.
fn fits(promised: &str, printed: &str) -> bool {
    let (mut at, mut left) = (0, printed);
    while at < promised.len() {
        let rest = &promised[at..];
        if let Some(rest) = rest.strip_prefix("..") {
            return left.char_indices().map(|(at, _)| at).chain([left.len()]).any(|end| {
                let after = &left[end..];
                fits(rest, after)
            });
        }
        let (expected, actual) = (number(rest), number(left));
        if expected.is_empty() {
            let Some(letter) = rest.chars().next() else { break };
            let Some(after) = left.strip_prefix(letter) else { return false };
            (at, left) = (at + letter.len_utf8(), after);
            continue;
        }
        let is_wait = WAITS.iter().any(|wait| promised[..at].ends_with(wait));
        let value = |text: &str| text.parse::<f64>().unwrap_or(f64::INFINITY);
        if expected != actual && !(is_wait && value(actual) <= value(expected)) {
            return false;
        }
        (at, left) = (at + expected.len(), &left[actual.len()..]);
    }
    left.is_empty()
}

/// The number at the start of a text, with its fraction.
fn number(text: &str) -> &str {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(text);
    let fraction = text[whole..].strip_prefix('.').map_or(0, digits);
    if whole == 0 || fraction == 0 { &text[..whole] } else { &text[..=whole + fraction] }
}

#[cfg(test)]
mod tests {
    use super::{is_kept, promises};

    #[test]
    fn a_promise_is_kept_by_shorter_waits_and_by_no_other_number() {
        let kept = |promised: &str, printed: &str| {
            let lines: Vec<_> = printed.lines().collect();
            is_kept(&promised.lines().map(str::to_owned).collect::<Vec<_>>(), &lines)
        };
        let promised = "HTTP/1.1 429 Too Many Requests\nretry-after: 60\n\nat most 2 per 60s, retry after 60s\n";
        let head = "HTTP/1.1 429 Too Many Requests\ndate: today\nretry-after: ";
        assert!(kept(promised, &format!("{head}58\n\nat most 2 per 60s, retry after 57.9s")));
        assert!(!kept(promised, &format!("{head}61\n\nat most 2 per 60s, retry after 60s")));
        assert!(!kept(promised, &format!("{head}60\n\nat most 2 per 59s, retry after 60s")));
        assert!(!kept(promised, &format!("{head}60\n\nat most 2 per 60s, retry after 60s, no")));
        assert!(!kept(promised, &format!("{head}60")));
        assert!(!kept(
            promised,
            "HTTP/1.1 429 Too Many Requests\n\nat most 2 per 60s, retry after 60s"
        ));
        assert!(kept("a .. left, .. more", "a 1 left, 2 more") && !kept("a .. left", "a 1 right"));
        assert!(kept("a\n..\nc", "a\nb\nb\nc") && !kept("a\n..\nc", "a\nb"));
    }

    #[test]
    fn a_block_of_text_has_commands_and_their_output() {
        let source = "//! `cargo run`\n//!\n//! ```text\n//! $ curl x\n//! one\n//!\n//! $ curl y\n//! ```\n//! ```\n//! no\n//! ```\n";
        let promises = promises(source);
        let commands: Vec<_> = promises.iter().map(|it| it.command.as_deref()).collect();
        assert_eq!(commands, [Some("curl x"), Some("curl y")]);
        assert_eq!(promises[0].output, ["one"]);
        assert!(promises[1].output.is_empty());
    }
}
