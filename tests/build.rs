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

/// The pages whose tests are run as users would write them, and the last words before each test's block.
const PRINTED_TESTS: [(&str, &str, &str); 2] = [
    ("../README.md", "## Testing\n", "readme_tests.rs"),
    ("../ratelimit-runtime/src/guide/tutorial.md", "# 6. A test\n", "tutorial_tests.rs"),
];

fn main() {
    greeter::main();
    generate_streams();
    let directory = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a directory"));
    for (page, title, name) in PRINTED_TESTS {
        println!("cargo::rerun-if-changed={page}");
        let page = fs::read_to_string(page).expect("the page");
        let block = page.split(title).nth(1).and_then(|part| part.split("```").nth(1));
        let code = block.expect("a block").trim_start_matches("rust");
        let shown = code.lines().filter(|line| !line.starts_with("# "));
        fs::write(directory.join(name), shown.collect::<Vec<_>>().join("\n"))
            .expect("the test is written");
    }
    for written in ON_ONE_LINE {
        println!("cargo::rerun-if-changed={written}");
        let code = fs::read_to_string(written).expect("the code");
        let code = without_inner_attributes(code.parse().expect("Rust")).to_string();
        let name = Path::new(written).file_name().expect("a file");
        fs::write(directory.join(name), code).expect("the code on one line is written");
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
