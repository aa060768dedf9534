//! The grammar of arguments: `name = value`, `flag` and `name(..)`, separated by commas.
//!
//! Floor 2.

use proc_macro2::{Ident, TokenTree};
use syn::{
    Token,
    ext::IdentExt,
    parse::{Parse, ParseStream},
};

use crate::errors::Errors;

/// An argument: its name, with the span, and its value.
pub(crate) struct Arg<T> {
    pub(crate) name: Ident,
    pub(crate) value: T,
}

/// The field of an argument, which decides its form.
pub(crate) trait Slot {
    /// Parses the argument after its name, into the field.
    fn parse(
        &mut self,
        name: Ident,
        input: ParseStream<'_>,
        errors: &mut Errors,
    ) -> syn::Result<()>;
}

/// The field of `name = value`.
impl<T: Parse> Slot for Option<Arg<T>> {
    fn parse(
        &mut self,
        name: Ident,
        input: ParseStream<'_>,
        errors: &mut Errors,
    ) -> syn::Result<()> {
        let needs_a_value =
            || syn::Error::new(name.span(), format!("`{name}` needs a value: `{name} = ..`"));
        if !input.peek(Token![=]) {
            return Err(needs_a_value());
        }
        input.parse::<Token![=]>()?;
        if input.is_empty() || input.peek(Token![,]) {
            return Err(needs_a_value());
        }
        let value = value(input)?;
        match self {
            Some(_) => errors.push(twice(&name)),
            None => *self = Some(Arg { name, value }),
        }
        Ok(())
    }
}

/// Parses a value. One that ends too early is reported at its last token, because the end has no
/// place.
fn value<T: Parse>(input: ParseStream<'_>) -> syn::Result<T> {
    let written = input.fork();
    input.parse().map_err(|error| {
        let mut last = None;
        while input.is_empty() && !written.is_empty() {
            last = written.parse::<TokenTree>().ok();
        }
        last.map_or(error.clone(), |last| syn::Error::new(last.span(), error))
    })
}

/// The field of an argument without a value: its name, with the span.
impl Slot for Option<Ident> {
    fn parse(
        &mut self,
        name: Ident,
        input: ParseStream<'_>,
        errors: &mut Errors,
    ) -> syn::Result<()> {
        if input.peek(Token![=]) {
            let message = format!("`{name}` takes no value: write `{name}`, or leave it out");
            return Err(syn::Error::new(name.span(), message));
        }
        match self {
            Some(_) => errors.push(twice(&name)),
            None => *self = Some(name),
        }
        Ok(())
    }
}

fn twice(name: &Ident) -> syn::Error {
    syn::Error::new(name.span(), format!("`{name}` is given twice; keep one of them"))
}

/// Parses arguments separated by commas, and continues after one with an error. `take` parses one
/// after its name.
pub(crate) fn each_argument(
    input: ParseStream<'_>,
    errors: &mut Errors,
    mut take: impl FnMut(Ident, ParseStream<'_>, &mut Errors) -> syn::Result<()>,
) -> syn::Result<()> {
    while !input.is_empty() {
        let parsed = input
            .call(Ident::parse_any)
            .map_err(|error| {
                let message = "expected an argument such as `period = 30`";
                syn::Error::new(error.span(), message)
            })
            .and_then(|name| take(name, input, errors))
            .and_then(|()| {
                if input.is_empty() || input.peek(Token![,]) {
                    return Ok(());
                }
                Err(input.error("expected a `,` before the next argument"))
            });
        if let Err(error) = parsed {
            errors.push(error);
            while !input.is_empty() && !input.peek(Token![,]) {
                input.parse::<TokenTree>()?;
            }
        }
        input.parse::<Option<Token![,]>>()?;
    }
    Ok(())
}
