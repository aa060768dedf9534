//! What is emitted: the item, and in front of its body one call into the runtime.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;

use crate::{
    args::Args,
    errors::Errors,
    function::Function,
    policy::{Policy, Tier},
    stacked,
    value::Value,
};

pub(crate) fn rate_limit(arguments: TokenStream, item: &TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let args = Args::parse(arguments, &mut errors);
    let policy = Policy::judge(args, &mut errors);
    let function = match Function::read(item) {
        Ok(function) => function,
        Err(error) => {
            errors.push(error);
            let errors = errors.into_tokens();
            return quote!(#item #errors);
        }
    };
    function.judge(&mut errors);
    let stacked = stacked::judge(policy.name.as_ref(), function.attributes(), &mut errors);
    // The item comes first and always: callers, and tools that complete names in it, go on.
    let function = match errors.into_tokens() {
        // Parameters that only an argument names would be reported as unused.
        Some(errors) => quote!(#[allow(unused)] #function #errors),
        None => function.with_prologue(&prologue(&policy, &function)),
    };
    quote!(#function #stacked)
}

/// One block: what is made in it is gone before the body runs.
fn prologue(policy: &Policy, function: &Function) -> TokenStream {
    let Policy { cost, max_wait, on_store_error, skip, key, limiter, krate, .. } = policy;
    let private = quote!(#krate::private);
    // Bindings that no one else can name, and that are no one's constants.
    let call = format_ident!("__ratelimit_call", span = Span::mixed_site());
    let checked = format_ident!("__ratelimit_checked", span = Span::mixed_site());
    let answer = format_ident!("__ratelimit_answer", span = Span::mixed_site());
    let refusal = format_ident!("__ratelimit_refusal", span = Span::mixed_site());
    let late_policy = format_ident!("__ratelimit_policy", span = Span::mixed_site());

    let literal = policy_tokens(policy, |value| value.literal(&private));
    let emit = |value: &Value| match value.number {
        Some(_) => value.literal(&private),
        None => function.localize(&value.expr),
    };
    let late = (!policy.is_literal()).then(|| {
        let tokens = policy_tokens(policy, emit);
        quote!(let #late_policy = #tokens;)
    });
    let check = if late.is_some() { quote!(check_under(&#late_policy)) } else { quote!(check()) };
    let receiver = function.has_receiver().then(|| quote!(#call.receiver::<Self>();));
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
    let limiter = limiter.as_ref().map(|expr| {
        let limiter = function.localize(expr);
        quote_spanned!(expr.span()=> #call.limiter(&(#limiter));)
    });
    // One statement a part: what an expression borrows is given back before anything is awaited.
    let parts = key.iter().map(|expr| {
        let part = function.localize(expr);
        let private = spanned(&private, expr.span());
        quote_spanned!(expr.span()=> #private::part(&(#part)).add_to(&mut #call);)
    });
    let settings: TokenStream = [receiver, cost, max_wait, on_store_error, limiter]
        .into_iter()
        .flatten()
        .chain(parts)
        .collect();

    // A return type that cannot carry the refusal is reported from the first of these tokens to
    // the last.
    let (first, last) = function.output_spans();
    let runtime = spanned(krate, first);
    let refused = quote_spanned!(last=> FromRejection::from_rejection(#refusal));

    let declaration = declaration(policy, &private);

    // The call is gone before anything is awaited, and most calls are decided by then.
    let prologue = quote! {
        let #checked = {
            let mut #call = #private::Call::new({
                struct Here;
                static SITE: #private::Site = #private::Site::new::<Here>(#literal, #declaration);
                #private::submit!(&SITE);
                &SITE
            });
            #late
            #settings
            #call.#check
        };
        if let #private::Err(#refusal) = match #checked {
            #private::Checked::Decided(#answer) => #answer,
            #private::Checked::Undecided(#answer) => #answer.await,
        } {
            return #runtime::#refused;
        }
    };
    let condition = skip.as_ref().map(|expr| {
        let skip = function.localize(expr);
        let private = spanned(&private, expr.span());
        let unless = quote_spanned!(expr.span()=> #private::unless(#skip));
        quote!(if #unless)
    });
    quote!(#condition { #prologue })
}

/// What the list of all limits says of the function beside its policy.
fn declaration(policy: &Policy, private: &TokenStream) -> TokenStream {
    let Policy { tiers, burst, cost, key, dry_run, .. } = policy;
    let written = |value: &Value| value.number.is_none().then(|| value.expr.to_token_stream());
    let values = tiers.iter().flat_map(|tier| [&tier.period, &tier.threshold]).chain(burst);
    let late: Vec<_> = values.filter_map(written).map(|expr| text(&expr)).collect();
    let cost = cost.as_ref().map_or_else(|| "1".to_owned(), |cost| text(&cost.expr));
    let key: Vec<_> = key.iter().map(text).collect();
    quote! {
        #private::Declaration {
            file: #private::file!(),
            line: #private::line!(),
            late: &[#(#late),*],
            cost: #cost,
            key: &[#(#key),*],
            dry_run: #dry_run,
        }
    }
}

/// The source of an expression, on one line.
fn text(expr: &impl ToTokens) -> String {
    expr.to_token_stream().to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The policy as the runtime makes it, with each value as `emit` writes it.
fn policy_tokens(policy: &Policy, emit: impl Fn(&Value) -> TokenStream) -> TokenStream {
    let Policy { algorithm, tiers, burst, count_rejected, name, krate, .. } = policy;
    let name = name.as_ref().map_or_else(|| quote!(""), ToTokens::to_token_stream);
    let constructor = format_ident!("{}", algorithm.as_str());
    let mut tiers = tiers.iter().map(|Tier { period, threshold, .. }| {
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

fn spanned(tokens: &impl ToTokens, span: Span) -> TokenStream {
    let respan = |mut token: TokenTree| {
        token.set_span(span);
        token
    };
    tokens.to_token_stream().into_iter().map(respan).collect()
}
