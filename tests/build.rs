//! The gRPC service of the examples, two with streams, and the sources of `attribute/on_one_line.rs`:
//! functions are compiled as rustfmt leaves them, and with nothing but spaces between their tokens.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};

use tonic_build::manual::{Builder, Method, Service};

#[path = "../examples/tonic/build.rs"]
mod greeter;

/// The files whose code is compiled on one line as well, under the same name. `ci/fix` reads this list.
const ON_ONE_LINE: [&str; 12] = [
    "attribute/answers.rs",
    "attribute/combined.rs",
    "attribute/concurrency.rs",
    "attribute/fallible.rs",
    "attribute/fallible_on_actix.rs",
    "attribute/fallible_on_axum.rs",
    "attribute/framework_handlers.rs",
    "attribute/real_handlers.rs",
    "attribute/settle.rs",
    "attribute/shared_policies.rs",
    "attribute/stacked.rs",
    "compile/ui/pass/functions.rs",
];

/// The blocks of pages that `programs/printed.rs` and `telemetry/spans.rs` run: the page, the last words before the block, and a name.
const PRINTED: [(&str, &str, &str); 23] = [
    ("README", "## Testing\n", "readme_tests"),
    ("tutorial", "# 2. A limited handler\n", "tutorial"),
    ("tutorial", "# 6. A test\n", "tutorial_tests"),
    ("callers", "# The argument `key`\n", "pairs"),
    ("cookbook", "# Login\n", "login"),
    ("cookbook", "# A code by mail\n", "code_by_mail"),
    ("cookbook", "# Sign-up\n", "sign_up"),
    ("cookbook", "# Plans\n", "plans"),
    ("cookbook", "# A plan, then credits\n", "credits"),
    ("cookbook", "# An upload\n", "upload"),
    ("cookbook", "# Calls to another service\n", "remote"),
    ("cookbook", "# A worker\n", "worker"),
    ("cookbook", "# A WebSocket\n", "web_socket"),
    ("cookbook", "# Interactive calls before a batch\n", "batch"),
    ("cookbook", "# Fair shares\n", "fair_shares"),
    ("layers", "# By request\n", "by_request"),
    ("layers", "# Lost refusals\n", "lost_refusals"),
    ("layers", "# Scripts of other origins\n", "other_origins"),
    ("metering", "# Reserve, then settle\n", "metering"),
    ("metering", "# A stream\n", "stream"),
    ("operating", "# The span of a request\n", "request_span"),
    ("testing", "# One test, one limiter\n", "testing_tests"),
    ("migration", "# From `tower_governor`\n", "migration"),
];

fn main() {
    greeter::main();
    generate_streams();
    let directory = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a directory"));
    write_printed(&directory);
    for written in ON_ONE_LINE {
        println!("cargo::rerun-if-changed={written}");
        let code = fs::read_to_string(written).expect("the code");
        let code = without_inner_attributes(code.parse().expect("Rust")).to_string();
        let name = Path::new(written).file_name().expect("a file");
        fs::write(directory.join(name), code).expect("the code on one line is written");
    }
}

/// Writes the blocks of pages, and asserts that no block of the guide is left out.
fn write_printed(directory: &Path) {
    const GUIDE: &str = "../ratelimit-runtime/src/guide";

    let mut blocks = Vec::new();
    for (page, title, name) in PRINTED {
        let path = match page {
            "README" => "../README.md".to_owned(),
            page => format!("{GUIDE}/{page}.md"),
        };
        println!("cargo::rerun-if-changed={path}");
        let page = fs::read_to_string(path).expect("the page");
        let block = page.split(title).nth(1).and_then(|part| part.split("```").nth(1));
        let (_, code) = block.and_then(|block| block.split_once('\n')).expect("a block");
        blocks.push(code.to_owned());
        // What rustdoc hides.
        let code = code.replace("\n# ", "\n");
        let code = if code.contains("\nlet app") {
            format!("fn app() -> axum::Router {{ {code} app }}")
        } else {
            code
        };
        fs::write(directory.join(name).with_extension("rs"), code).expect("it is written");
    }
    println!("cargo::rerun-if-changed={GUIDE}");
    let files = fs::read_dir(GUIDE).expect("the pages").map(|file| file.expect("a page").path());
    for path in files.filter(|path| path.extension().is_some_and(|it| it == "md")) {
        let page = fs::read_to_string(&path).expect("the page");
        for block in page.split("```").skip(1).step_by(2) {
            let (language, code) = block.split_once('\n').expect("a block");
            // A `main` that rustdoc hides is run by rustdoc.
            let is_run = ["sh", "text", "toml"].contains(&language)
                || code.contains("\n# async fn main() {\n")
                || blocks.iter().any(|it| it == code);
            let path = path.display();
            assert!(is_run, "{path} has a block that no test runs; add it to `PRINTED`:\n{code}");
        }
    }
}

/// Generates a service whose responses are streams, and one with methods of all four kinds, over the
/// greeter's messages.
fn generate_streams() {
    let method = |name: &str, route: &str| {
        Method::builder()
            .name(name)
            .route_name(route)
            .input_type("super::HelloRequest")
            .output_type("super::HelloReply")
            .codec_path("tonic_prost::ProstCodec")
    };
    let feed = Service::builder()
        .name("Feed")
        .package("feed.v1")
        .method(method("follow", "Follow").server_streaming().build())
        .build();
    let route_guide = Service::builder()
        .name("RouteGuide")
        .package("routeguide")
        .method(method("get_feature", "GetFeature").build())
        .method(method("list_features", "ListFeatures").server_streaming().build())
        .method(method("record_route", "RecordRoute").client_streaming().build())
        .method(method("route_chat", "RouteChat").client_streaming().server_streaming().build())
        .build();
    Builder::new().compile(&[feed, route_guide]);
}

/// Without those of the file: the module that includes the code has its own.
fn without_inner_attributes(code: TokenStream) -> TokenStream {
    let mut tokens = code.into_iter().peekable();
    while let Some(TokenTree::Punct(_)) = tokens.peek() {
        // `#` and `!`, before the attribute in brackets; an outer one belongs to the first item.
        let pound = tokens.next();
        if !matches!(tokens.peek(), Some(TokenTree::Punct(mark)) if mark.as_char() == '!') {
            return pound.into_iter().chain(tokens).collect();
        }
        tokens.nth(1);
    }
    tokens.collect()
}
