//! Several `#[rate_limit]` on one function: none may count under the name of another.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::{Attribute, LitStr, Meta};

use crate::{args::Args, errors::Errors, policy};

const MESSAGE: &str = "two `#[rate_limit]` of one function would count under one name, and disturb \
    each other: for several periods of one caller, write one attribute with a \
    `tier(period = .., threshold = ..)` for each; for different callers, give each attribute a \
    `name = \"..\"` of its own";

/// Judges an attribute of this name together with those below it, which are expanded after it and
/// do not see it. It returns what has to be emitted for those of which only the compiler knows
/// whether they are there, `#[cfg_attr(.., rate_limit(..))]`.
pub(crate) fn judge(
    name: Option<&LitStr>,
    attributes: &[Attribute],
    errors: &mut Errors,
) -> Option<TokenStream> {
    let mut clashes =
        Clashes { name: name.map(LitStr::value), is_certain: false, when: Vec::new() };
    for attribute in attributes {
        clashes.find(&attribute.meta, &[]);
    }
    let Clashes { is_certain, when, .. } = clashes;
    if is_certain {
        errors.push(syn::Error::new(Span::call_site(), MESSAGE));
        return None;
    }
    (!when.is_empty()).then(|| {
        let error = quote_spanned!(Span::call_site()=> ::core::compile_error! { #MESSAGE });
        quote!(#[cfg(any(#(#when),*))] #error)
    })
}

struct Clashes {
    /// That of the attribute above.
    name: Option<String>,
    is_certain: bool,
    /// Under which configurations there is one.
    when: Vec<TokenStream>,
}

impl Clashes {
    fn find(&mut self, below: &Meta, conditions: &[TokenStream]) {
        let Some(last) = below.path().segments.last() else { return };
        if last.ident == "rate_limit" {
            let name = name_of(below);
            if name.is_some() && self.name.is_some() && name != self.name {
                return;
            }
            match conditions {
                [] => self.is_certain = true,
                conditions => self.when.push(quote!(all(#(#conditions),*))),
            }
        } else if last.ident == "cfg_attr"
            && let Meta::List(list) = below
        {
            let is_comma =
                |token: &TokenTree| matches!(token, TokenTree::Punct(it) if it.as_char() == ',');
            let tokens: Vec<_> = list.tokens.clone().into_iter().collect();
            let mut parts = tokens.split(is_comma).map(|part| part.iter().cloned().collect());
            let conditions: Vec<_> = conditions.iter().cloned().chain(parts.next()).collect();
            for below in parts.filter_map(|part| syn::parse2::<Meta>(part).ok()) {
                self.find(&below, &conditions);
            }
        }
    }
}

/// The `name` that an attribute gives, if it is one.
fn name_of(attribute: &Meta) -> Option<String> {
    let Meta::List(list) = attribute else { return None };
    // Its own expansion tells what is wrong in it.
    let mut unheard = Errors::default();
    let name = Args::parse(list.tokens.clone(), &mut unheard).name?;
    policy::judge_name(&name.value, &mut unheard).map(|name| name.value())
}
