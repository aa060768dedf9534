//! The argument `settle`: the units that a call really took, by a closure over its output.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{Expr, ExprClosure, Pat, ReturnType, spanned::Spanned};

use crate::{check::Check, function::spanned, value::ungrouped};

/// The argument `settle`: the pattern of the output, and the number of units.
pub(crate) struct Settle {
    output: Pat,
    units: Expr,
}

impl Settle {
    /// Parses the closure.
    pub(crate) fn new(expr: &Expr) -> syn::Result<Self> {
        let error = |at: &dyn ToTokens, message| {
            Err(syn::Error::new_spanned(at.to_token_stream(), message))
        };
        let Expr::Closure(closure) = ungrouped(expr) else {
            let message = "`settle` is a closure over the function's output, such as \
                `settle = |out| out.len()`";
            return error(expr, message);
        };
        let ExprClosure { asyncness, inputs, output, body, .. } = closure;
        if let Some(keyword) = asyncness {
            return error(keyword, "`settle` cannot await: write `|out|`");
        }
        if let ReturnType::Type(arrow, _) = output {
            return error(arrow, "`settle` takes any unsigned integer; remove this type");
        }
        match inputs.first().filter(|_| inputs.len() == 1) {
            Some(output) => Ok(Self { output: output.clone(), units: (**body).clone() }),
            None => error(expr, "`settle` has one parameter, the output: write `|out| ..`"),
        }
    }
}

/// The settle of one limit of a function, after its body.
pub(crate) struct AfterBody {
    charge: Ident,
    private: TokenStream,
    closure: TokenStream,
    at: Span,
}

impl AfterBody {
    /// Returns the settle of a limit, if it has one, and the statement before the body that keeps its
    /// charge. `kept` is the variable with the decision.
    pub(crate) fn new(check: Check<'_>, kept: &Ident) -> Option<(Self, TokenStream)> {
        let Settle { output, units } = check.spec.settle.as_ref()?;
        let charge = format_ident!("{}charge_{kept}", check.it, span = check.it.span());
        let (private, at) = (check.private(), units.span());
        let (here, units) = (spanned(&private, at), check.function.localize(units));
        let closure = quote_spanned! {at=>
            |#output| #here::Units::units(#here::number(#units).pick())
        };
        let statement = quote!(let #charge = #private::Charge::of(&#kept););
        Some((Self { charge, private, closure, at }, statement))
    }

    /// Returns the expression that settles the call by `body`, and has its value.
    pub(crate) fn wrap(&self, body: &TokenStream) -> TokenStream {
        let Self { charge, private, closure, at } = self;
        let settle = quote_spanned!(*at=> settle);
        quote!(#private::Charge::#settle(#charge, #body, #closure))
    }
}
