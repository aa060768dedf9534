//! The emitted code: the item, with one call into the runtime before its body.

use proc_macro2::TokenStream;
use quote::quote;

use crate::{
    args::Args, check::Check, errors::Errors, function::Function, limit::LimitSpec,
    prologue::prologue, stacked,
};

/// Expands the attribute.
pub(crate) fn rate_limit(arguments: TokenStream, item: &TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let it = stacked::callsite(&arguments);
    let args = Args::parse(arguments, &mut errors);
    let spec = LimitSpec::validate(args, &mut errors);
    let mut function = match Function::parse_item(item) {
        Ok(function) => function,
        Err(error) => {
            errors.push(error);
            let errors = errors.into_tokens();
            return quote!(#item #errors);
        }
    };
    function.validate(&mut errors);
    spec.answer.validate_in(&function, &mut errors);
    if let Some(policy) = &spec.policy {
        policy.validate_in(&function, &mut errors);
    } else {
        stacked::validate(spec.name.as_ref(), item, &mut errors);
    }
    if let Some(flag) = &spec.fallible {
        function.make_fallible(flag, &spec.krate, &mut errors);
    }
    // The item is always emitted, and first: its callers and completion in it still work.
    if let Some(errors) = errors.into_tokens() {
        // The arguments are gone: parameters that only they name are unused.
        return quote!(#[allow(unused)] #function #errors);
    }
    let check = Check { spec: &spec, function: &function, it: &it };
    function.with_prologue(&prologue(check))
}
