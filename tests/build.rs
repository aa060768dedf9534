//! The gRPC service of the examples, and the sources of the targets `.._on_one_line`: functions are
//! compiled as rustfmt leaves them, and with nothing but spaces between their tokens.

use std::{env, fs, path::PathBuf};

use proc_macro2::{TokenStream, TokenTree};

#[path = "../examples/tonic/build.rs"]
mod greeter;

/// Each target, and the file whose code it compiles on one line.
const ON_ONE_LINE: [(&str, &str); 3] = [
    ("fallible_on_one_line.rs", "fallible.rs"),
    ("lints_on_one_line.rs", "ui/pass/functions.rs"),
    ("zoo_on_one_line.rs", "zoo.rs"),
];

fn main() {
    greeter::main();
    let directory = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a directory"));
    for (target, written) in ON_ONE_LINE {
        println!("cargo::rerun-if-changed={written}");
        let code = fs::read_to_string(written).expect("the code");
        let code = without_inner_attributes(code.parse().expect("Rust")).to_string();
        fs::write(directory.join(target), code).expect("the code on one line is written");
    }
}

/// Those of the file: the target that includes the code has its own.
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
