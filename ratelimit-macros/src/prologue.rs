//! The prologue: the check of a function's limit, and the answer to it.
//!
//! Floor 8.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;

use crate::{check::Check, settle::Settle, together, tokens::spanned};

/// The code around the body.
#[derive(Default)]
pub(crate) struct Prologue {
    /// The statements before the body.
    pub(crate) before: TokenStream,
    /// The path of the runtime's items, if the body's output settles a call.
    pub(crate) private: Option<TokenStream>,
    settles: Vec<AfterBody>,
}

impl Prologue {
    /// Returns the prologue of a function whose limits have errors.
    pub(crate) fn half_typed(before: TokenStream) -> Self {
        Self { before, ..Self::default() }
    }

    /// Returns the prologue of a function's limits, from the topmost one on.
    pub(crate) fn new(checks: &[Check<'_>]) -> Self {
        let mut before = match checks {
            [check] => prologue(*check),
            checks => together::prologue(checks),
        };
        let mut settles = Vec::new();
        for (index, check) in checks.iter().enumerate() {
            let kept = if checks.len() == 1 { check.kept() } else { together::kept(*check, index) };
            let settle = kept.and_then(|kept| AfterBody::new(*check, &kept));
            if let Some((settle, statement)) = settle {
                before.extend(statement);
                settles.push(settle);
            }
        }
        let private = checks.first().filter(|_| !settles.is_empty()).map(|it| it.private());
        Self { before, private, settles }
    }

    /// Returns the expression that settles the calls by the body's output, and has its value.
    pub(crate) fn settle(&self, output: TokenStream) -> TokenStream {
        self.settles.iter().fold(output, |output, settle| settle.wrap(&output))
    }
}

/// Returns the prologue: one block, whose values are dropped before the body runs, except the
/// decision that the body sees.
fn prologue(check: Check<'_>) -> TokenStream {
    let Check { spec, function, it } = check;
    let private = check.private();
    let (condition, callsite) = (check.condition(), check.callsite());
    if spec.answer.is_plain() && check.kept().is_none() {
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
    let start = check.start(match &kept {
        Some(_) if spec.keeps_decision() => "decide",
        Some(_) => "hold",
        None => "admit",
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
        (Some(kept), Some(condition)) if !spec.keeps_decision() => {
            // Nobody reads the decision: a guard without a permit has the same type.
            let unchecked = quote!({ #private::PermitGuard::UNCHECKED });
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

/// Returns the expression that answers the checked call. Its value is the decision, if the body
/// sees it.
fn answered(check: Check<'_>) -> TokenStream {
    let Check { spec, it, .. } = check;
    if spec.answer.is_soft {
        return it.to_token_stream();
    }
    let (private, refusal) = (check.private(), check.refusal(|error| error));
    quote! {
        match #it {
            #private::Ok(#it) => #it,
            #refusal
        }
    }
}

/// The settle of one limit of a function, after its body.
struct AfterBody {
    charge: Ident,
    private: TokenStream,
    closure: TokenStream,
    at: Span,
}

impl AfterBody {
    /// Returns the settle of a limit, if it has one, and the statement before the body that keeps
    /// its charge. `kept` is the variable with the decision.
    fn new(check: Check<'_>, kept: &Ident) -> Option<(Self, TokenStream)> {
        let Settle { output, units } = check.spec.settle.as_ref()?;
        let charge = format_ident!("{}charge_{}", check.it, kept, span = check.it.span());
        let (private, at) = (check.private(), units.span());
        let (here, units) = (spanned(&private, at), check.function.localize(units));
        let closure = quote_spanned! {at=>
            |#output| #here::Units::units(#here::number(#units).pick())
        };
        // The body reads the decision that it names.
        let shared = check.spec.answer.decision.as_ref().map(|_| quote!(&));
        let statement = quote!(let #charge = #private::Charge::of(#shared #kept););
        Some((Self { charge, private, closure, at }, statement))
    }

    /// Returns the expression that settles the call by `body`, and has its value.
    fn wrap(&self, body: &TokenStream) -> TokenStream {
        let Self { charge, private, closure, at } = self;
        let settle = quote_spanned!(*at=> settle);
        quote!(#private::Charge::#settle(&#charge, #body, #closure))
    }
}
