//! What was written in the attribute, spans intact; nothing is judged here but the grammar.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::{
    Expr, Path, Token,
    ext::IdentExt,
    parse::{Parse, ParseStream, Parser},
};

use crate::errors::Errors;

/// An argument's value; `None` where it was not given.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) period: Option<Expr>,
    pub(crate) threshold: Option<Expr>,
    pub(crate) key: Option<Expr>,
    pub(crate) name: Option<Expr>,
    pub(crate) limiter: Option<Expr>,
    pub(crate) krate: Option<Path>,
}

const NAMES: &str = "`period`, `threshold`, `key`, `name`, `limiter` and `crate`";

impl Args {
    /// Takes in every argument that can be read; the others are errors.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let list = |input: ParseStream<'_>| {
            while !input.is_empty() {
                if let Err(error) = args.parse_one(input, errors) {
                    errors.push(error);
                    skip_to_comma(input)?;
                }
                input.parse::<Option<Token![,]>>()?;
            }
            Ok(())
        };
        if let Err(error) = list.parse2(tokens) {
            errors.push(error);
        }
        args
    }

    fn parse_one(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        let name = input.call(Ident::parse_any).map_err(|error| {
            syn::Error::new(
                error.span(),
                format!("expected an argument such as `period = 30`; the arguments are {NAMES}"),
            )
        })?;
        match name.to_string().as_str() {
            "period" => assign(&mut self.period, &name, input, errors)?,
            "threshold" => assign(&mut self.threshold, &name, input, errors)?,
            "key" => assign(&mut self.key, &name, input, errors)?,
            "name" => assign(&mut self.name, &name, input, errors)?,
            "limiter" => assign(&mut self.limiter, &name, input, errors)?,
            "crate" => assign(&mut self.krate, &name, input, errors)?,
            unknown => {
                let meant = match unknown {
                    "limit" | "max" | "count" | "requests" | "rate" => {
                        "; the number of calls is `threshold`"
                    }
                    "window" | "per" | "interval" | "ttl" => {
                        "; the length of the window is `period`"
                    }
                    _ => "",
                };
                let message =
                    format!("unknown argument `{unknown}`{meant}; the arguments are {NAMES}");
                return Err(syn::Error::new(name.span(), message));
            }
        }
        if input.is_empty() || input.peek(Token![,]) {
            Ok(())
        } else {
            Err(input.error("expected a `,` before the next argument"))
        }
    }
}

/// Reads `= value` into the argument's slot.
fn assign<T: Parse>(
    slot: &mut Option<T>,
    name: &Ident,
    input: ParseStream<'_>,
    errors: &mut Errors,
) -> syn::Result<()> {
    if !input.peek(Token![=]) {
        return Err(syn::Error::new(name.span(), format!("`{name}` needs a value: `{name} = ..`")));
    }
    input.parse::<Token![=]>()?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(syn::Error::new(name.span(), format!("`{name}` needs a value: `{name} = ..`")));
    }
    let value = input.parse()?;
    if slot.is_some() {
        errors.at(name, format!("`{name}` is given twice; keep one of them"));
    } else {
        *slot = Some(value);
    }
    Ok(())
}

fn skip_to_comma(input: ParseStream<'_>) -> syn::Result<()> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<TokenTree>()?;
    }
    Ok(())
}
