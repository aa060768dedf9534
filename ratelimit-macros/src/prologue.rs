//! The prologue: the check of a function's limit, and the answer to it.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};

use crate::check::Check;

/// Returns the prologue: one block, whose values are dropped before the body runs, except the decision
/// that the body sees.
pub(crate) fn prologue(check: Check<'_>) -> TokenStream {
    let Check { spec, function, it } = check;
    let private = check.private();
    let (condition, callsite) = (check.condition(), check.callsite());
    if spec.answer.is_plain() && !spec.holds_permit() {
        let start = check.start("admit");
        let refused = function.refused(&spec.krate, it);
        // Most calls are decided before anything is awaited.
        return quote! {
            #condition {
                #callsite
                let #it = #start;
                match #it {
                    #private::Started::Ready(#private::Ok(#it)) => #it,
                    #private::Started::Ready(#private::Err(#it)) => return #refused,
                    #private::Started::Pending(#it) => if let #private::Err(#it) = #it.await {
                        return #refused;
                    },
                }
            }
        };
    }
    let kept = check.kept();
    let start = check.start(match (&spec.answer.decision, &kept) {
        (Some(_), _) => "decide",
        (None, Some(_)) => "hold",
        (None, None) => "admit",
    });
    let answered = answered(check);
    let checked = quote! {
        let #it = #start;
        let #it = match #it {
            #private::Started::Ready(#it) => #it,
            #private::Started::Pending(#it) => #it.await,
        };
        #answered
    };
    match (kept, condition) {
        (None, condition) => quote!(#condition { #callsite #checked }),
        (Some(kept), None) => quote!(let #kept = { #callsite #checked };),
        (Some(kept), Some(condition)) if spec.answer.decision.is_none() => {
            let unchecked = quote!({ #private::CallInFlight::UNCHECKED });
            quote!(let #kept = { #callsite #condition { #checked } else #unchecked };)
        }
        (Some(decision), Some(condition)) => {
            let skipped = check.skipped();
            let skipped =
                if spec.answer.is_soft { quote!({ #private::Ok(#skipped) }) } else { skipped };
            quote!(let #decision = { #callsite #condition { #checked } else #skipped };)
        }
    }
}

/// Returns the expression that answers the checked call. Its value is the decision, if the body sees
/// it.
fn answered(check: Check<'_>) -> TokenStream {
    let Check { spec, it, .. } = check;
    if spec.answer.is_soft {
        return it.to_token_stream();
    }
    let (private, refusal) = (check.private(), refusal(check, |error| error));
    quote! {
        match #it {
            #private::Ok(#it) => #it,
            #refusal
        }
    }
}

/// Returns the arm that ends a refused call. `pattern` makes its pattern of that of the error.
pub(crate) fn refusal(
    check: Check<'_>,
    pattern: impl FnOnce(TokenStream) -> TokenStream,
) -> TokenStream {
    let Check { spec, function, it } = check;
    let private = check.private();
    if let Some(otherwise) = &spec.answer.otherwise {
        let pattern = pattern(otherwise.pattern(it));
        let value = otherwise.tokens(function, it);
        // The value of `panic!(..)` is never returned.
        return quote! {
            #[allow(unreachable_code, clippy::diverging_sub_expression)]
            #private::Err(#pattern) => { #value; }
        };
    }
    let (pattern, refused) = (pattern(it.to_token_stream()), function.refused(&spec.krate, it));
    quote!(#private::Err(#pattern) => return #refused,)
}
