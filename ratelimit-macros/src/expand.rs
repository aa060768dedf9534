//! The emitted code: the item, with one call into the runtime before its body.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;

use crate::{
    args::Args,
    errors::Errors,
    function::{Function, spanned},
    limit::{LimitSpec, TierSpec},
    stacked,
    value::{Kind, Value},
};

/// Expands the attribute.
pub(crate) fn rate_limit(arguments: TokenStream, item: &TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let callsite = stacked::callsite(&arguments);
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
    stacked::validate(spec.name.as_ref(), item, &mut errors);
    if let Some(flag) = &spec.fallible {
        function.make_fallible(flag, &spec.krate, &mut errors);
    }
    // The item is always emitted, and first: its callers and completion in it still work.
    match errors.into_tokens() {
        // The arguments are gone: parameters that only they name are unused.
        Some(errors) => quote!(#[allow(unused)] #function #errors),
        None => function.with_prologue(&prologue(&spec, &function, &callsite)),
    }
}

/// Returns the prologue: one block, whose values are dropped before the body runs.
///
/// All its bindings share the name `it`, which is first declared as a function: see
/// [`stacked::callsite`].
fn prologue(spec: &LimitSpec, function: &Function, it: &Ident) -> TokenStream {
    let LimitSpec { cost, max_wait, on_store_error, skip, key, limiter, krate, .. } = spec;
    let private = quote!(#krate::__private);

    let literal = policy_tokens(spec, |value| value.literal(&private));
    let declaration = declaration(spec, &private);
    let emit = |value: &Value| match (value.number, value.kind) {
        (Some(_), _) => value.literal(&private),
        (None, Kind::Time) => function.localize(&value.expr),
        (None, Kind::Units) => units(&private, value.expr.span(), &function.localize(&value.expr)),
    };
    let dynamic = (!spec.is_literal()).then(|| policy_tokens(spec, emit));
    let new = quote!(#private::CallBuilder::new(#it()));
    // A dynamic policy is passed with the call.
    let (at, limiter) = match limiter {
        Some(expr) => {
            let limiter = function.localize(expr);
            (expr.span(), quote!(&(#limiter)))
        }
        None => (Span::call_site(), quote!(#private::limiter())),
    };
    let (new, call, admit) = match dynamic {
        Some(dynamic) => (
            quote!((#new, #dynamic)),
            quote!(#it.0),
            quote_spanned!(at=> admit_under(#limiter, &#it.1)),
        ),
        None => (new, quote!(#it), quote_spanned!(at=> admit(#limiter))),
    };
    let self_type = function.has_receiver().then(|| quote!(#call.self_type::<Self>();));
    let cost = cost.as_ref().map(|cost| {
        let units = emit(cost);
        quote_spanned!(cost.expr.span()=> #call.cost(#units);)
    });
    let max_wait = max_wait.as_ref().map(|max_wait| {
        let time = emit(max_wait);
        quote_spanned!(max_wait.expr.span()=> #call.max_wait(#time);)
    });
    let on_store_error = on_store_error.map(|variant| {
        let variant = format_ident!("{}", variant);
        quote!(#call.on_store_error(#krate::OnStoreError::#variant);)
    });
    // One statement a part: its borrows end before anything is awaited.
    let parts = key.iter().map(|expr| {
        let part = function.localize(expr);
        let private = spanned(&private, expr.span());
        quote_spanned! {expr.span()=>
            #private::KeyPart::push_to(#private::part(&(#part)).pick(), #call.caller());
        }
    });
    let settings: TokenStream =
        [self_type, cost, max_wait, on_store_error].into_iter().flatten().chain(parts).collect();
    let refused = function.refused(krate, it);

    // The builder is dropped before anything is awaited. Most calls are decided by then.
    let prologue = quote! {
        fn #it() -> &'static #private::Callsite {
            static CALLSITE: #private::Callsite = #private::Callsite::new(#it, #literal, #declaration);
            #private::submit!(&CALLSITE);
            &CALLSITE
        }
        let #it = {
            let mut #it = #new;
            #settings
            #call.#admit
        };
        match #it {
            #private::Started::Ready(#private::Ok(#it)) => #it,
            #private::Started::Ready(#private::Err(#it)) => return #refused,
            #private::Started::Pending(#it) => if let #private::Err(#it) = #it.await {
                return #refused;
            },
        }
    };
    let condition = skip.as_ref().map(|expr| {
        let skip = function.localize(expr);
        let private = spanned(&private, expr.span());
        let runs_check = quote_spanned!(expr.span()=> #private::runs_check(#skip));
        quote!(if #runs_check)
    });
    quote!(#condition { #prologue })
}

/// Returns the conversion of a number of any unsigned type into units.
fn units(private: &TokenStream, span: Span, number: &TokenStream) -> TokenStream {
    let private = spanned(private, span);
    quote_spanned!(span=> #private::Units::units(#private::number(#number).pick()))
}

/// Returns the declaration of the callsite, for the list of all limits.
fn declaration(spec: &LimitSpec, private: &TokenStream) -> TokenStream {
    let LimitSpec { tiers, burst, cost, key, dry_run, .. } = spec;
    let written = |value: &Value| value.number.is_none().then(|| value.expr.to_token_stream());
    let values = tiers.iter().flat_map(|tier| [&tier.period, &tier.threshold]).chain(burst);
    let dynamic: Vec<_> = values.filter_map(written).map(|expr| text(&expr)).collect();
    let cost = cost.as_ref().map_or_else(|| "1".to_owned(), |cost| text(&cost.expr));
    let key: Vec<_> = key.iter().map(text).collect();
    quote! {
        #private::Declaration {
            file: #private::file!(),
            line: #private::line!(),
            column: #private::column!(),
            module: #private::module_path!(),
            dynamic: &[#(#dynamic),*],
            cost: #cost,
            key: &[#(#key),*],
            dry_run: #dry_run,
        }
    }
}

/// Returns the source of an expression on one line.
fn text(expr: &impl ToTokens) -> String {
    expr.to_token_stream().to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the policy's constructor call, with each value as `emit` writes it.
fn policy_tokens(spec: &LimitSpec, emit: impl Fn(&Value) -> TokenStream) -> TokenStream {
    let LimitSpec { algorithm, tiers, burst, count_rejected, name, krate, .. } = spec;
    let name = name.as_ref().map_or_else(|| quote!(""), ToTokens::to_token_stream);
    let constructor = format_ident!("{}", algorithm.as_str());
    let mut tiers = tiers.iter().map(|TierSpec { period, threshold, .. }| {
        let (period, threshold) = (emit(period), emit(threshold));
        quote!(#period, #threshold)
    });
    let first = tiers.next();
    let burst = burst.as_ref().map(|burst| {
        let burst = emit(burst);
        quote!(.burst(#burst))
    });
    let count_rejected = count_rejected.as_ref().map(|_| quote!(.count_rejected()));
    quote!(#krate::Policy::#constructor(#name, #first)#(.tier(#tiers))* #burst #count_rejected)
}
