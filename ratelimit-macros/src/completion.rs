//! Completion in editors, inside arguments that are half typed.
//!
//! rust-analyzer inserts an identifier at the cursor, and completes where the expansion has it. It
//! reads the types there from a second expansion, of what is typed so far. So both must have one
//! form:
//!
//! - With an error in what is typed, the values stay in the output, in a branch that is never
//!   taken. `rustc` does not see them.
//! - Without one, the output is the usual one, and no text in it has the inserted identifier.
//!
//! Floor 6.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::quote;
use syn::{Path, Type};

use crate::{args::ARGUMENTS, stacked::LimitAttribute};

/// The identifier that rust-analyzer inserts. If the cursor is in a name, it becomes a part of it.
const CURSOR: &str = "raCompletionMarker";

/// Returns the attributes as they are typed so far, if the cursor is in one.
pub(crate) fn as_typed_in(attributes: &[LimitAttribute]) -> Option<Vec<LimitAttribute>> {
    let typed = |LimitAttribute { at, arguments }: &LimitAttribute| LimitAttribute {
        at: *at,
        arguments: as_typed(arguments.clone()),
    };
    let has_cursor = attributes.iter().any(|it| it.arguments.to_string().contains(CURSOR));
    has_cursor.then(|| attributes.iter().map(typed).collect())
}

/// Returns the tokens as they are typed so far, without the identifier at the cursor.
pub(crate) fn as_typed(tokens: TokenStream) -> TokenStream {
    let typed = |token: TokenTree| match token {
        TokenTree::Ident(name) if name.to_string().contains(CURSOR) => {
            let rest = name.to_string().replace(CURSOR, "");
            rest.parse::<TokenStream>().unwrap_or_default()
        }
        TokenTree::Group(group) => {
            let mut typed = Group::new(group.delimiter(), as_typed(group.stream()));
            typed.set_span(group.span());
            TokenTree::from(typed).into()
        }
        other => other.into(),
    };
    tokens.into_iter().map(typed).collect::<TokenStream>()
}

/// Returns the statement with the values of the attributes, for the start of the body. `output` is
/// its type, and `krate` the path of the runtime.
pub(crate) fn half_typed(
    attributes: &[LimitAttribute],
    output: &Type,
    krate: &Path,
) -> TokenStream {
    let all = attributes.iter().flat_map(|attribute| values(&attribute.arguments));
    let statements = all.map(|(name, value)| {
        let is_closure =
            matches!(value.first(), Some(TokenTree::Punct(bar)) if bar.as_char() == '|');
        let ty = match name.to_string().as_str() {
            "otherwise" if is_closure => quote!(: fn(#krate::RateLimitError) -> _),
            "settle" => quote!(: fn(&#output) -> _),
            _ => TokenStream::new(),
        };
        quote!(let _ #ty = #(#value)*;)
    });
    let statements: TokenStream = statements.collect();
    if statements.is_empty() {
        return statements;
    }
    quote!(#krate::__private::half_typed! { #statements })
}

/// Returns the values that are expressions, with the names of their arguments.
fn values(arguments: &TokenStream) -> Vec<(Ident, Vec<TokenTree>)> {
    let tokens: Vec<_> = arguments.clone().into_iter().collect();
    let is_comma =
        |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ',');
    let is_word = |name: &Ident| ARGUMENTS.iter().any(|it| it.is_word && *name == it.name);
    let mut values = Vec::new();
    for argument in tokens.split(is_comma) {
        match argument {
            [TokenTree::Ident(name), TokenTree::Punct(mark), value @ ..]
                if mark.as_char() == '=' && !is_word(name) =>
            {
                values.push((name.clone(), value.to_vec()));
            }
            [TokenTree::Ident(_), TokenTree::Group(tier), ..] => {
                values.extend(self::values(&tier.stream()));
            }
            _ => {}
        }
    }
    values
}
