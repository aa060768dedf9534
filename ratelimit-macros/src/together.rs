//! The prologue of several limits: their calls are decided together, all or none.
//!
//! Floor 8.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{ToTokens, quote, quote_spanned};

use crate::{check::Check, tokens::spanned};

/// Returns the prologue of several limits, from the topmost one on.
pub(crate) fn prologue(checks: &[Check<'_>]) -> TokenStream {
    let [Check { it, .. }, ..] = checks else { return TokenStream::new() };
    let private = checks[0].private();
    let parts = checks.iter().map(|check| part(*check));
    let kept: Vec<_> =
        checks.iter().enumerate().map(|(index, check)| kept(*check, index)).collect();
    let names: Vec<_> = kept.iter().flatten().collect();
    let bindings =
        kept.iter().map(|name| name.as_ref().map_or_else(|| quote!(_), ToTokens::to_token_stream));
    let decisions: Vec<_> = checks
        .iter()
        .zip(&kept)
        .filter_map(|(check, name)| {
            let name = name.as_ref()?;
            let is_soft = check.spec.answer.is_soft;
            Some(if is_soft { quote!(#name) } else { quote!(#private::admitted(#name)) })
        })
        .collect();
    let (refusals, names_apart) = (refusals(checks), names_apart(checks));
    let all = if names.is_empty() { quote!(admit_all) } else { quote!(decide_all) };
    let together = |decisions: TokenStream| {
        quote! {{
            #names_apart
            // It shadows a constant of this name: see `stacked::callsite`.
            fn #it() {}
            let #it = #private::#all([#(#parts),*]);
            let #it = match #it {
                #private::Started::Ready(#it) => #it,
                #private::Started::Pending(#it) => #it.await,
            };
            match #it {
                #private::Ok([#(#bindings),*]) => #decisions,
                #refusals
            }
        }}
    };
    match (&names[..], &decisions[..]) {
        ([], _) => together(quote!({})),
        ([name], [decision]) => {
            let together = together(decision.clone());
            quote!(let #name = #together;)
        }
        _ => {
            let together = together(quote!((#(#decisions),*)));
            quote!(let (#(#names),*) = #together;)
        }
    }
}

/// Returns the variable of one limit that is kept until the end of the body.
pub(crate) fn kept(check: Check<'_>, index: usize) -> Option<Ident> {
    let kept = check.kept()?;
    let is_decision = check.spec.answer.decision.is_some();
    Some(if is_decision { kept } else { Ident::new(&format!("{kept}_{index}"), kept.span()) })
}

/// Returns the block with the call of one limit.
fn part(check: Check<'_>) -> TokenStream {
    let (it, private) = (check.it, check.private());
    let (callsite, start) = (check.callsite(), check.start("join"));
    let soft = check.spec.answer.is_soft.then(|| quote!(.soft()));
    let part = quote!(let #it = #start; #it #soft);
    let Some(condition) = check.condition() else {
        return quote!({ #callsite #part });
    };
    let skipped = check.skipped();
    quote!({ #callsite #condition { #part } else { #private::JointCheck::skipped(#skipped) } })
}

/// Returns the arms of a refused call. The limit that refused it answers.
fn refusals(checks: &[Check<'_>]) -> TokenStream {
    let hard = checks.iter().enumerate().filter(|(_, check)| !check.spec.answer.is_soft);
    let (own, mut rest): (Vec<_>, Vec<_>) =
        hard.partition(|(_, check)| check.spec.answer.otherwise.is_some());
    let mut own = own.into_iter();
    // The last arm names no index, so that the `match` is exhaustive.
    if rest.is_empty() {
        rest.extend(own.next_back());
    }
    let own = own.map(|(index, check)| {
        let index = Literal::usize_suffixed(index);
        check.refusal(|error| quote!((#index, #error)))
    });
    let last = if let Some((_, check)) = rest.first() {
        check.refusal(|error| quote!((_, #error)))
    } else {
        let private = checks[0].private();
        // Soft limits refuse nothing.
        quote!(#private::Err(_) => #private::never(),)
    };
    quote!(#(#own)* #last)
}

/// Returns the items by which the compiler compares the names of shared policies with the others.
fn names_apart(checks: &[Check<'_>]) -> TokenStream {
    let pairs = checks.iter().enumerate().flat_map(|(index, lower)| {
        checks[..index].iter().map(move |upper| (upper.spec, lower.spec))
    });
    // Literal names have been compared by `stacked::validate`.
    let shared = pairs.filter(|(upper, lower)| upper.policy.is_some() || lower.policy.is_some());
    shared
        .map(|(upper, lower)| {
            let private = spanned(&checks[0].private(), lower.at);
            let (upper, name) = (upper.name_tokens(), lower.name_tokens());
            let apart = quote_spanned!(lower.at=> #private::names_apart(#upper, #name));
            quote!(const _: () = #apart;)
        })
        .collect()
}
