//! The attribute: its arguments and its item validated, then the emitted code, or the errors beside
//! the item.
//!
//! Floor 9.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::{Expr, ExprLit, ExprPath, Lit};

use crate::{
    args::Args,
    assemble::assemble,
    check::Check,
    completion,
    errors::Errors,
    function::Function,
    limit::LimitSpec,
    prologue::Prologue,
    stacked::{self, LimitAttribute},
    value,
};

/// Expands the attribute.
pub(crate) fn rate_limit(arguments: TokenStream, item: &TokenStream) -> TokenStream {
    let mut attributes = vec![LimitAttribute { at: Span::call_site(), arguments }];
    let mut errors = Errors::default();
    let mut function = match Function::parse_item(item) {
        Ok(function) => function,
        Err((item, error)) => {
            validate_arguments(&attributes, &mut errors);
            errors.push(error);
            let errors = errors.into_tokens();
            return quote!(#item #errors);
        }
    };
    attributes.extend(stacked::take_below(&mut function));
    let typed = completion::as_typed_in(&attributes);
    let mut specs = validate_arguments(typed.as_ref().unwrap_or(&attributes), &mut errors);
    validate(&specs, &function, &mut errors);
    stacked::validate_alone(item, &mut errors);
    // The output as it is written, before `fallible` changes it.
    let (krate, output) = (specs[0].krate.clone(), function.output());
    if let Some(flag) = &specs[0].fallible {
        function.make_fallible(flag, &krate);
    }
    // The item is always emitted, and first: its callers and completion in it still work.
    if let Some(errors) = errors.into_tokens() {
        let half_typed = completion::half_typed(&attributes, &output, &krate);
        let named = stacked::named_parameters(&attributes, &function);
        // The compiler does not see the arguments: parameters that only they name would be unused.
        let before = quote!(#half_typed #(let _ = &#named;)*);
        let function = assemble(&function, &Prologue::half_typed(before));
        return quote!(#function #errors);
    }
    // What is typed has no error: the usual code follows, with the cursor in it.
    if typed.is_some() {
        specs = validate_arguments(&attributes, &mut Errors::default());
    }
    let it = stacked::callsite(&attributes);
    let checks: Vec<_> =
        specs.iter().map(|spec| Check { spec, function: &function, it: &it }).collect();
    assemble(&function, &Prologue::new(&checks))
}

/// Returns the limits of the attributes, and adds every error.
fn validate_arguments(attributes: &[LimitAttribute], errors: &mut Errors) -> Vec<LimitSpec> {
    let limit = |LimitAttribute { at, arguments }: &LimitAttribute| {
        let args = Args::parse(arguments.clone(), errors);
        LimitSpec::validate(args, *at, errors)
    };
    attributes.iter().map(limit).collect()
}

/// Validates the item, the limits against each other, and their names against those of the item.
fn validate(specs: &[LimitSpec], function: &Function, errors: &mut Errors) {
    function.validate(errors);
    stacked::validate(specs, errors);
    for spec in specs {
        if let Some(name) = spec.answer.decision.as_ref().filter(|it| function.has_parameter(it)) {
            errors.at(name, format!("`{name}` is a parameter; give the decision another name"));
        }
        validate_key(&spec.key, function, errors);
        if let Some(policy) = &spec.policy {
            validate_policy(&policy.path, function, errors);
        }
    }
    if let Some(flag) = &specs[0].fallible {
        function.validate_fallible(flag, errors);
    }
}

/// Validates a key that is one string: a parameter in quotes by mistake would be one count for all
/// callers.
fn validate_key(key: &[Expr], function: &Function, errors: &mut Errors) {
    let [part] = key else { return };
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = value::ungrouped(part) else { return };
    let name = text.parse::<Ident>().ok();
    if let Some(name) = name.filter(|name| function.has_parameter(name)) {
        errors.at(
            part,
            format!(
                "`{name}` is a parameter: write `key = {name}` without quotes, or another word if \
                 all callers share one count"
            ),
        );
    }
}

/// Validates the path of a shared policy against the function's own names.
fn validate_policy(path: &ExprPath, function: &Function, errors: &mut Errors) {
    let Some(first) = path.path.segments.first().map(|segment| &segment.ident) else {
        return;
    };
    if path.path.get_ident().is_some_and(|name| function.has_parameter(name)) {
        errors.at(
            first,
            format!(
                "`{first}` is a parameter; `policy` is a `const` or `static`: write values of the \
                 call as `period` and `threshold`"
            ),
        );
    } else if function.has_type_parameter(first) {
        errors.at(
            first,
            format!(
                "`{first}` is a type parameter, which a `static` cannot name: move the policy to a \
                 `const` of the module"
            ),
        );
    }
}
