//! The function with its prologue.
//!
//! Floor 9.

use proc_macro2::TokenStream;
use quote::quote;

use crate::{
    fallible,
    function::{Body, Function},
    prologue::Prologue,
    tokens::inner_block,
};

/// Returns the function with `prologue` before its body. The body keeps its own block, so that its
/// items cannot shadow names of the prologue.
pub(crate) fn assemble(function: &Function, prologue: &Prologue) -> TokenStream {
    let Function { attributes, visibility, signature, body, semicolon, fallible } = function;
    let body = body.as_ref().map(|(brace, body)| {
        let mut tokens = TokenStream::new();
        brace.surround(&mut tokens, |tokens| match body {
            Body::Plain(body) => {
                tokens.extend(prologue.before.clone());
                let mut block = TokenStream::new();
                inner_block(brace).surround(&mut block, |inner| inner.extend(body.clone()));
                let output = match (fallible, &prologue.private) {
                    (Some(fallible), _) => fallible.output_of(&block),
                    (None, Some(private)) => {
                        fallible::output_as(&block, function.output(), private)
                    }
                    (None, None) => block,
                };
                let output = prologue.settle(output);
                tokens.extend(match fallible {
                    Some(fallible) => fallible.returned(&output),
                    None => output,
                });
            }
            Body::Boxed(boxed) => tokens.extend(match &prologue.private {
                Some(private) => boxed.with_prologue(&prologue.before, |body| {
                    prologue.settle(fallible::output_as(body, function.output(), private))
                }),
                None => boxed.with_prologue(&prologue.before, TokenStream::clone),
            }),
        });
        tokens
    });
    quote!(#(#attributes)* #visibility #signature #body #semicolon)
}
