//! What is emitted: the item, and in front of its body one call into the runtime.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;

use crate::{args::Args, errors::Errors, function::Function, policy::Policy};

pub(crate) fn rate_limit(arguments: TokenStream, item: &TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let args = Args::parse(arguments, &mut errors);
    let policy = Policy::judge(args, &mut errors);
    let Ok(function) = syn::parse2::<Function>(item.clone()) else {
        errors.push(syn::Error::new(Span::call_site(), "`#[rate_limit]` goes on an `async fn`"));
        let errors = errors.into_tokens();
        return quote!(#item #errors);
    };
    function.judge(&mut errors);
    // The item comes first and always: callers, and tools that complete names in it, go on.
    match errors.into_tokens() {
        Some(errors) => quote!(#function #errors),
        None => function.with_prologue(&prologue(&policy, &function)),
    }
}

fn prologue(policy: &Policy, function: &Function) -> TokenStream {
    let Policy { period_micros, threshold, key, name, limiter, krate } = policy;
    let name = name.as_ref().map_or_else(|| quote!(""), |name| quote!(#name));
    let private = quote!(#krate::private);
    // A binding that no one else can name, and that is no one's constant.
    let call = syn::Ident::new("__ratelimit_call", Span::mixed_site());
    let refusal = syn::Ident::new("__ratelimit_refusal", Span::mixed_site());

    let receiver = function.has_receiver().then(|| quote!(#call.receiver::<Self>();));
    let limiter = limiter
        .as_ref()
        .map(|limiter| quote_spanned!(limiter.span()=> #call.limiter(&(#limiter));));
    // One statement a part: what an expression borrows is given back before anything is awaited.
    let parts = key.iter().map(|part| {
        let private = spanned(&private, part.span());
        quote_spanned!(part.span()=> #private::part(&(#part)).add_to(&mut #call);)
    });
    // A return type that cannot carry the refusal is reported from the first of these tokens to
    // the last.
    let (first, last) = function.output_spans();
    let runtime = spanned(krate, first);
    let refusal_as_output = quote_spanned!(last=> FromRejection::from_rejection(#refusal));
    quote! {
        #[allow(unused_mut)]
        let mut #call = #private::Call::new({
            struct Here;
            static SITE: #private::Site = #private::Site::new::<Here>(
                #krate::Policy::sliding_window(#name, #private::micros(#period_micros), #threshold),
            );
            &SITE
        });
        #receiver
        #limiter
        #(#parts)*
        if let #private::Err(#refusal) = #call.check().await {
            return #runtime::#refusal_as_output;
        }
    }
}

fn spanned(tokens: &impl ToTokens, span: Span) -> TokenStream {
    let respan = |mut token: TokenTree| {
        token.set_span(span);
        token
    };
    tokens.to_token_stream().into_iter().map(respan).collect()
}
