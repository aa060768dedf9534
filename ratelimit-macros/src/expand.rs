//! The emitted code: the item, with one call into the runtime before its body.

use proc_macro2::{Span, TokenStream};
use quote::quote;

use crate::{
    args::Args,
    check::Check,
    errors::Errors,
    function::Function,
    limit::LimitSpec,
    prologue::Prologue,
    stacked::{self, LimitAttribute},
};

/// Expands the attribute.
pub(crate) fn rate_limit(arguments: TokenStream, item: &TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let parsed = Function::parse_item(item);
    let mut attributes = vec![LimitAttribute { at: Span::call_site(), arguments }];
    let mut function = match parsed {
        Ok(mut function) => {
            attributes.extend(stacked::take_below(&mut function));
            Ok(function)
        }
        Err(error) => Err(error),
    };
    let it = stacked::callsite(&attributes);
    let mut specs = Vec::new();
    for LimitAttribute { at, arguments } in attributes {
        let args = Args::parse(arguments, &mut errors);
        specs.push(LimitSpec::validate(args, at, &mut errors));
    }
    let function = match &mut function {
        Ok(function) => function,
        Err(error) => {
            errors.push(error.clone());
            let errors = errors.into_tokens();
            return quote!(#item #errors);
        }
    };
    function.validate(&mut errors);
    stacked::validate(&specs, &mut errors);
    stacked::validate_alone(item, &mut errors);
    for spec in &specs {
        spec.answer.validate_in(function, &mut errors);
        if let Some(policy) = &spec.policy {
            policy.validate_in(function, &mut errors);
        }
    }
    if let Some(flag) = &specs[0].fallible {
        function.make_fallible(flag, &specs[0].krate, &mut errors);
    }
    // The item is always emitted, and first: its callers and completion in it still work.
    if let Some(errors) = errors.into_tokens() {
        // The arguments are gone: parameters that only they name are unused.
        return quote!(#[allow(unused)] #function #errors);
    }
    let checks: Vec<_> =
        specs.iter().map(|spec| Check { spec, function: &*function, it: &it }).collect();
    function.with_prologue(&Prologue::new(&checks))
}
