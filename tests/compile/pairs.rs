//! Any two arguments combine in functions of every shape, or are an error: the one or the other as written
//! here.

use std::{fmt::Write as _, fs, thread};

use proc_macro2::TokenStream;

use crate::{
    expand,
    same_rules::{item, messages},
    ui::Compiler,
};

/// An argument, and what it is written with.
pub(crate) struct Argument {
    name: &'static str,
    pub(crate) text: &'static str,
}

macro_rules! arguments {
    ($($name:literal: $text:literal,)*) => { [$(Argument { name: $name, text: $text }),*] };
}

/// `concurrency` is a limit of its own beside these, or goes with a window.
pub(crate) const ARGUMENTS: [Argument; 35] = arguments! {
    "threshold": r#"period = "1m", threshold = 9"#,
    "tier": r#"tier(period = "1m", threshold = 9), tier(period = "1h", threshold = 99)"#,
    "key": "key = (user, len(&text))",
    "name": r#"name = "own""#,
    "algorithm": "algorithm = sliding_counter",
    "burst": "algorithm = token_bucket, burst = 2",
    "cost": "cost = 2",
    "dynamic cost": "cost = units",
    "skip": "skip = units > 7",
    "limiter": "limiter = limiter",
    "on_store_error": "on_store_error = deny",
    "max_wait": r#"max_wait = "1s""#,
    "dynamic max_wait": "max_wait = Duration::from_secs(units.into())",
    "count_rejected": "count_rejected",
    "dry_run": "dry_run",
    "fallible": "fallible",
    "otherwise": "otherwise = Some(answer(text).await?)",
    "decision": "decision = quota",
    "soft": "decision = quota, soft",
    "policy": "policy = SHARED",
    "plan": "policy = PLANS, plan = user",
    "request_id": "request_id = len(&text)",
    "concurrency": "concurrency = 5",
    "concurrency_timeout": r#"concurrency = units, concurrency_timeout = "10s""#,
    "concurrency beside a window": r#"concurrency = 5, period = "1m", threshold = 9"#,
    "settle": "settle = |out| units_of(out)",
    "lease": r#"lease = "20ms""#,
    "dynamic lease": "lease = Duration::from_millis(units.into())",
    "zone": r#"algorithm = calendar_window, period = "day", threshold = 9, zone = "Europe/Berlin""#,
    "quota_unit": "quota_unit = rows",
    "leave": r#"leave = "20%""#,
    "dynamic leave": "leave = if units > 7 { 20_u8 } else { 0 }",
    "warn_at": r#"warn_at = "80%""#,
    "block": r#"block = ["2m", "10m", "1h"]"#,
    "crate": "crate = ratelimit_runtime",
};

/// Those of a whole policy, which `policy` names.
const OF_POLICY: [&str; 14] = [
    "block",
    "zone",
    "threshold",
    "tier",
    "name",
    "algorithm",
    "burst",
    "count_rejected",
    "concurrency",
    "concurrency_timeout",
    "concurrency beside a window",
    "lease",
    "dynamic lease",
    "quota_unit",
];

/// Those that need a window.
const OF_WINDOW: [&str; 10] = [
    "block",
    "warn_at",
    "cost",
    "dynamic cost",
    "algorithm",
    "burst",
    "count_rejected",
    "request_id",
    "settle",
    "quota_unit",
];

/// Those that need the store at each call, and so have no lease.
const OF_STORE: [&str; 9] = [
    "block",
    "settle",
    "request_id",
    "max_wait",
    "dynamic max_wait",
    "count_rejected",
    "concurrency",
    "concurrency_timeout",
    "concurrency beside a window",
];

/// Entries that have an argument in common.
const SAME: [&[&str]; 12] = [
    &["zone", "threshold"],
    &["zone", "algorithm", "burst"],
    &["zone", "concurrency beside a window"],
    &["policy", "plan"],
    &["leave", "dynamic leave"],
    &["algorithm", "burst"],
    &["cost", "dynamic cost"],
    &["max_wait", "dynamic max_wait"],
    &["decision", "soft"],
    &["concurrency", "concurrency_timeout", "concurrency beside a window"],
    &["threshold", "concurrency beside a window"],
    &["lease", "dynamic lease"],
];

/// Other pairs that are an error.
const WRONG: [(&str, &str); 19] = [
    ("zone", "tier"),
    ("zone", "max_wait"),
    ("zone", "dynamic max_wait"),
    ("zone", "count_rejected"),
    ("zone", "request_id"),
    ("zone", "lease"),
    ("zone", "dynamic lease"),
    ("fallible", "otherwise"),
    ("fallible", "soft"),
    ("soft", "otherwise"),
    ("threshold", "tier"),
    ("tier", "burst"),
    ("tier", "concurrency beside a window"),
    ("request_id", "algorithm"),
    ("request_id", "burst"),
    ("request_id", "count_rejected"),
    ("dynamic cost", "count_rejected"),
    ("settle", "count_rejected"),
    ("warn_at", "tier"),
];

/// Those that use up what a call is to leave.
const NOT_LEFT: [&str; 5] =
    ["max_wait", "dynamic max_wait", "count_rejected", "lease", "dynamic lease"];

/// Those that a call under a block cannot have.
const NOT_BLOCKED: [&str; 5] =
    ["max_wait", "dynamic max_wait", "request_id", "leave", "dynamic leave"];

fn is_wrong(one: &str, other: &str) -> bool {
    let is =
        |a: &str, b: &[&str]| (one == a && b.contains(&other)) || (other == a && b.contains(&one));
    is("policy", &OF_POLICY)
        || is("plan", &OF_POLICY)
        || is("concurrency", &OF_WINDOW)
        || is("concurrency_timeout", &OF_WINDOW)
        || is("lease", &OF_STORE)
        || is("dynamic lease", &OF_STORE)
        || is("leave", &NOT_LEFT)
        || is("dynamic leave", &NOT_LEFT)
        || is("block", &NOT_BLOCKED)
        || WRONG.iter().any(|(a, b)| is(a, &[b]))
}

/// Returns all pairs of different arguments, each once.
fn pairs() -> Vec<[&'static Argument; 2]> {
    let pairs = ARGUMENTS
        .iter()
        .enumerate()
        .flat_map(|(index, one)| ARGUMENTS[index + 1..].iter().map(move |other| [one, other]));
    let is_same = |names: &[&str], pair: &[&Argument; 2]| {
        pair.iter().all(|argument| names.contains(&argument.name))
    };
    pairs.filter(|pair| !SAME.iter().any(|names| is_same(names, pair))).collect()
}

#[test]
fn two_arguments_combine_or_are_an_error_in_either_order() {
    for [one, other] in pairs() {
        for (first, second) in [(one, other), (other, one)] {
            let arguments = format!("{}, {}", first.text, second.text);
            let faults = messages(expand::rate_limit(arguments.parse().unwrap(), &item()));
            assert_eq!(
                !faults.is_empty(),
                is_wrong(one.name, other.name),
                "{arguments}: {faults:?}"
            );
        }
    }
}

/// The start of the program: what the arguments name, and the lints.
const PRELUDE: &str = "
#![deny(warnings, unused, future_incompatible, rust_2018_idioms, unused_qualifications, let_underscore)]
#![allow(dead_code, non_camel_case_types)]

use std::{future::ready, time::Duration};

use ratelimit_runtime::{Limiter, Plans, Policy, RateLimitError, rate_limit};

const SHARED: Policy = Policy::sliding_window(\"shared\", Duration::from_secs(60), 9);
const PLANS: Plans = Plans::new(\"plans\", \"free\", SHARED).plan(\"pro\", SHARED);

struct Service;

struct Error(RateLimitError);

impl From<RateLimitError> for Error {
    fn from(error: RateLimitError) -> Self {
        Self(error)
    }
}

fn len(text: &impl AsRef<str>) -> usize {
    text.as_ref().len()
}

fn units_of<T>(_: &T) -> u8 {
    3
}

async fn answer(text: impl AsRef<str>) -> Option<usize> {
    ready(()).await;
    Some(len(&text))
}

fn assert_send<T: Send>(_: T) {}
";

const SHAPES: usize = 4;

/// Returns a function of one of the shapes, and a call of it.
fn function(shape: usize, number: usize, pair: [&Argument; 2]) -> (String, String) {
    let has = |name: &str| pair.iter().any(|argument| argument.name == name);
    let attribute = format!("#[rate_limit(\n    {},\n    {}\n)]", pair[0].text, pair[1].text);
    let (output, value) = match () {
        () if has("otherwise") => ("Option<usize>", "Some(length)"),
        () if has("fallible") || has("soft") => ("usize", "length"),
        () => ("Result<usize, Error>", "Ok(length)"),
    };
    let quota = if has("decision") || has("soft") { "drop(quota);" } else { "" };
    let body = format!(
        "{{
    let length = len(&text) + user.len() + limiter.is_in_memory() as usize + units as usize;
    {quota}
    drop(text);
    ready(()).await;
    {value}
}}"
    );
    let start = "limiter: &Limiter, user: &str, units: u32";
    let of_text = format!("({start}, text: String) -> {output}");
    let of_service = format!("(&self, {start}, text: String) -> {output}");
    let arguments = "(&limiter, \"alice\", 1, String::new())";
    match shape {
        0 => (
            format!("{attribute}\nasync fn f{number}{of_text} {body}"),
            format!("f{number}{arguments}"),
        ),
        1 => (
            format!(
                "{attribute}\nasync fn f{number}<'a, T>({}, text: T) -> {output}\n\
                 where T: AsRef<str> + Send + 'a {body}",
                start.replace("&str", "&'a str")
            ),
            format!("f{number}{arguments}"),
        ),
        2 => (
            format!("impl Service {{\n{attribute}\nasync fn f{number}{of_service} {body}\n}}"),
            format!("Service.f{number}{arguments}"),
        ),
        _ => (
            format!(
                "#[async_trait::async_trait]\ntrait T{number} {{\nasync fn f{number}{of_service};\n}}\n\
                 #[async_trait::async_trait]\nimpl T{number} for Service {{\n{attribute}\n\
                 async fn f{number}{of_service} {body}\n}}"
            ),
            format!("Service.f{number}{arguments}"),
        ),
    }
}

#[test]
fn functions_with_two_arguments_compile_without_a_warning() {
    // Each pair has one function in a program that is formatted, and one in a program on one line.
    let mut programs = [(); 2].map(|()| (PRELUDE.to_owned(), String::new()));
    let allowed = pairs().into_iter().filter(|[one, other]| !is_wrong(one.name, other.name));
    let mut functions = 0;
    for (index, pair) in allowed.enumerate() {
        let shapes = [index % SHAPES, (index / SHAPES + 1) % SHAPES];
        for ((program, calls), shape) in programs.iter_mut().zip(shapes) {
            // The type of a boxed future stays as it is.
            let is_fallible = pair.iter().any(|argument| argument.name == "fallible");
            let shape = if is_fallible { shape % (SHAPES - 1) } else { shape };
            let (function, call) = function(shape, functions, pair);
            writeln!(program, "\n{function}").unwrap();
            writeln!(calls, "    assert_send({call});").unwrap();
            functions += 1;
        }
    }
    assert!(functions > 400, "{functions}");
    let [formatted, on_one_line] = programs.map(|(program, calls)| {
        format!("{program}\nfn main() {{\n    let limiter = Limiter::in_memory();\n{calls}}}\n")
    });
    let on_one_line = on_one_line.parse::<TokenStream>().unwrap().to_string();
    let compiler = Compiler::new();
    thread::scope(|scope| {
        for (name, code) in [("formatted", formatted), ("on_one_line", on_one_line)] {
            let path = compiler.scratch(name);
            fs::write(&path, code).unwrap();
            let compiler = &compiler;
            scope.spawn(move || {
                if let Err(errors) = compiler.compile(&path, "metadata") {
                    panic!("{name}: {}", errors.chars().take(8_000).collect::<String>());
                }
            });
        }
    });
}
