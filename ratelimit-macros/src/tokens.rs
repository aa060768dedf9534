//! Spans, braces and patterns, as all stages need them.
//!
//! Floor 1.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Pat, token::Brace};

/// Returns `true` if the identifier is among the tokens.
pub(crate) fn contains(tokens: &TokenStream, name: &str) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == name,
        TokenTree::Group(group) => contains(&group.stream(), name),
        _ => false,
    })
}

/// Returns the names that the pattern binds.
pub(crate) fn bound_names(pattern: &Pat) -> Vec<&Ident> {
    let inner: Vec<&Pat> = match pattern {
        Pat::Ident(it) => it.subpat.iter().map(|(_, it)| &**it).collect(),
        Pat::Or(it) => it.cases.iter().collect(),
        Pat::Paren(it) => vec![&it.pat],
        Pat::Reference(it) => vec![&it.pat],
        Pat::Slice(it) => it.elems.iter().collect(),
        Pat::Struct(it) => it.fields.iter().map(|field| &*field.pat).collect(),
        Pat::Tuple(it) => it.elems.iter().collect(),
        Pat::TupleStruct(it) => it.elems.iter().collect(),
        Pat::Type(it) => vec![&it.pat],
        _ => Vec::new(),
    };
    let own = if let Pat::Ident(it) = pattern { Some(&it.ident) } else { None };
    own.into_iter().chain(inner.into_iter().flat_map(bound_names)).collect()
}

/// Returns braces at the position of the user's, marked as generated. With the user's own span,
/// `rustc` would report the braces of a one-line body as unnecessary, and `cargo fix` would remove
/// those of the function.
pub(crate) fn inner_block(brace: &Brace) -> Brace {
    Brace(Span::mixed_site().located_at(brace.span.join()))
}

/// Returns the tokens, each with the span `span`.
pub(crate) fn spanned(tokens: &impl ToTokens, span: Span) -> TokenStream {
    let respan = |mut token: TokenTree| {
        let is_dollar_crate = matches!(&token, TokenTree::Ident(ident) if ident == "$crate");
        // Its own span says which crate it is: that of the macro which contains it.
        token.set_span(if is_dollar_crate { token.span().located_at(span) } else { span });
        token
    };
    tokens.to_token_stream().into_iter().map(respan).collect()
}
