//! Several `#[rate_limit]` on one function: each needs a name of its own.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use syn::{Lit, LitStr};

use crate::errors::Errors;

const MESSAGE: &str = "two `#[rate_limit]` of one function would count under one name, and disturb \
    each other: for several periods of one caller, write one attribute with a \
    `tier(period = .., threshold = ..)` for each; for different callers, give each attribute a \
    `name = \"..\"` of its own";

/// The name of the function that a prologue declares, and of its bindings.
const CALLSITE: &str = "__ratelimit";

/// Returns a name that `arguments` do not contain.
///
/// A prologue first declares a function of this name, then binds the name. Patterns see constants
/// in spite of hygiene: a user's constant of this name would make the binding an error. The
/// function shadows such a constant, and a binding may shadow a function.
pub(crate) fn callsite(arguments: &TokenStream) -> Ident {
    let mut name = CALLSITE.to_owned();
    while contains(arguments, &name) {
        name.push('_');
    }
    Ident::new(&name, Span::mixed_site())
}

fn contains(tokens: &TokenStream, name: &str) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == name,
        TokenTree::Group(group) => contains(&group.stream(), name),
        _ => false,
    })
}

/// Validates the name of an attribute against those of the attributes above it. They are expanded
/// already, so their names are read from the prologues in the body. This also finds attributes that
/// are imported under another name.
pub(crate) fn validate(name: Option<&LitStr>, item: &TokenStream, errors: &mut Errors) {
    let mut above = Vec::new();
    find_names(item, &mut above);
    let name = name.map(LitStr::value);
    if above.iter().any(|above| name.as_ref().is_none_or(|name| above.is_empty() || above == name))
    {
        errors.push(syn::Error::new(Span::call_site(), MESSAGE));
    }
}

/// Collects the names in the prologues among the tokens; empty for the function's path.
fn find_names(tokens: &TokenStream, names: &mut Vec<String>) {
    let mut tokens = tokens.clone().into_iter();
    let mut after_fn = false;
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(ident) => {
                let is_callsite = after_fn && ident.to_string().starts_with(CALLSITE);
                after_fn = ident == "fn";
                if is_callsite {
                    let is_body = |token: &TokenTree| matches!(token, TokenTree::Group(it) if it.delimiter() == Delimiter::Brace);
                    names.extend(tokens.find(is_body).as_ref().and_then(first_text));
                }
            }
            TokenTree::Group(group) => find_names(&group.stream(), names),
            _ => {}
        }
    }
}

/// Returns the first string literal: the name is the first argument of a policy.
fn first_text(token: &TokenTree) -> Option<String> {
    match token {
        TokenTree::Group(group) => group.stream().into_iter().find_map(|token| first_text(&token)),
        TokenTree::Literal(literal) => match Lit::new(literal.clone()) {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}
