//! Several `#[rate_limit]` on one function: the topmost takes in those below it.
//!
//! Floor 6.

use std::collections::HashSet;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    Meta, Path,
    ext::IdentExt,
    parse::{Parse, Parser},
    spanned::Spanned,
};

use crate::{errors::Errors, function::Function, limit::LimitSpec, tokens::contains};

const ONE_NAME: &str = "two `#[rate_limit]` of one function would count under one name, and disturb \
    each other: for several periods of one caller, write one attribute with a \
    `tier(period = .., threshold = ..)` for each; for different callers, give each attribute a \
    `name = \"..\"` of its own";

const NOT_TAKEN_IN: &str = "the `#[rate_limit]` above this one has not taken it in, so that they would \
    not be decided together: write both by one name, as `#[rate_limit(..)]`, and the lower one without \
    `cfg_attr`";

/// The name of the attribute.
const ATTRIBUTE: &str = "rate_limit";

/// The name of the function that a prologue declares, and of its bindings.
const CALLSITE: &str = "__ratelimit";

/// One of the attributes of a function.
pub(crate) struct LimitAttribute {
    pub(crate) at: Span,
    pub(crate) arguments: TokenStream,
}

/// Returns a name that no arguments contain.
///
/// A prologue first declares a function of this name, then binds the name. Patterns see constants
/// in spite of hygiene: a user's constant of this name would make the binding an error. The
/// function shadows such a constant, and a binding may shadow a function.
pub(crate) fn callsite(attributes: &[LimitAttribute]) -> Ident {
    let mut name = CALLSITE.to_owned();
    while attributes.iter().any(|it| contains(&it.arguments, &name)) {
        name.push('_');
    }
    Ident::new(&name, Span::mixed_site())
}

/// Returns the parameters of the function that the arguments name, also in a format string. Those
/// that a boxed future uses are left out: a borrow in it may come after a move out of it.
pub(crate) fn named_parameters<'a>(
    attributes: &[LimitAttribute],
    function: &'a Function,
) -> Vec<&'a Ident> {
    let texts: Vec<_> = attributes.iter().map(|it| it.arguments.to_string()).collect();
    let is_in_name = |mark: char| mark.is_alphanumeric() || mark == '_';
    let words: HashSet<_> =
        texts.iter().flat_map(|text| text.split(|mark| !is_in_name(mark))).collect();
    let mut parameters = function.parameters();
    let is_named = |it: &Ident| words.contains(&*it.unraw().to_string());
    parameters.retain(|it| is_named(it) && !function.is_captured(it));
    parameters
}

/// Takes the attributes of this name off the function.
///
/// An attribute does not learn the name by which it is imported, but its source has it. Under
/// another name, only the same one and paths that end in `rate_limit` are surely this attribute.
pub(crate) fn take_below(function: &mut Function) -> Vec<LimitAttribute> {
    let own = own_name().unwrap_or_else(|| ATTRIBUTE.to_owned());
    let is_own = |path: &Path| {
        let last = path.segments.last().map(|segment| segment.ident.to_string());
        last.is_some_and(|last| last == own || (last == ATTRIBUTE && path.segments.len() > 1))
    };
    let below = |meta: Meta| {
        let at = meta.path().span();
        let arguments = match meta {
            Meta::Path(_) => TokenStream::new(),
            Meta::List(list) => list.tokens,
            // Not a form of this attribute: its value is an error among the arguments.
            Meta::NameValue(value) => value.value.into_token_stream(),
        };
        LimitAttribute { at, arguments }
    };
    let taken = function.attributes.extract_if(.., |attribute| is_own(attribute.path()));
    taken.map(|attribute| below(attribute.meta)).collect()
}

/// Returns the name by which the attribute is written, unless another one, as `cfg_attr`, contains
/// it.
fn own_name() -> Option<String> {
    let source = Span::call_site().source_text()?;
    let path = |tokens: TokenStream| {
        let path = |input: syn::parse::ParseStream<'_>| {
            let path = Path::parse(input)?;
            input.parse::<TokenStream>()?;
            Ok(path)
        };
        path.parse2(tokens).ok()
    };
    let mut tokens = source
        .parse::<TokenStream>()
        .ok()?
        .into_iter()
        .skip_while(|token| matches!(token, TokenTree::Punct(mark) if mark.as_char() == '#'));
    let path = match tokens.next()? {
        TokenTree::Group(group) => path(group.stream()),
        first => path(std::iter::once(first).chain(tokens).collect()),
    };
    let name = path?.segments.last()?.ident.to_string();
    (name != "cfg_attr").then_some(name)
}

/// Validates the limits of one function against each other.
pub(crate) fn validate(specs: &[LimitSpec], errors: &mut Errors) {
    let mut names = HashSet::new();
    let mut decisions = HashSet::new();
    let mut waits = false;
    for (index, spec) in specs.iter().enumerate() {
        let name = spec.counted_as();
        let is_unnamed = specs.len() > 1 && name.is_none();
        if is_unnamed || !names.insert(name) {
            // One error for a function: of two without a name, at the lower one.
            let at = if index == 0 { specs[1].at } else { spec.at };
            errors.push(syn::Error::new(at, ONE_NAME));
            return;
        }
        if let Some(decision) = &spec.answer.decision
            && !decisions.insert(decision.to_string())
        {
            errors.at(
                decision,
                format!("`{decision}` is the decision of the limit above; choose another name"),
            );
        }
        if let Some(max_wait) = &spec.max_wait
            && spec.waits()
            && std::mem::replace(&mut waits, true)
        {
            errors.at(
                max_wait,
                "only one of several limits may have a `max_wait`: two would hold what they have taken \
                 while they wait",
            );
        }
        if let Some(flag) = spec.fallible.as_ref().filter(|_| index > 0) {
            errors.at(flag, "of several `#[rate_limit]`, the topmost one has the flag `fallible`");
        }
    }
}

/// Adds an error if the function has the prologue of an attribute above this one.
pub(crate) fn validate_alone(item: &TokenStream, errors: &mut Errors) {
    if has_prologue(item) {
        errors.push(syn::Error::new(Span::call_site(), NOT_TAKEN_IN));
    }
}

/// Returns `true` if there is a prologue among the tokens.
fn has_prologue(tokens: &TokenStream) -> bool {
    let mut after_fn = false;
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => {
            let is_callsite = after_fn && ident.to_string().starts_with(CALLSITE);
            after_fn = ident == "fn";
            is_callsite
        }
        TokenTree::Group(group) => has_prologue(&group.stream()),
        _ => false,
    })
}
