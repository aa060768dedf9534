//! The argument `settle`: the units that a call really took, by a closure over its output.
//!
//! Floor 3.

use quote::ToTokens;
use syn::{Expr, ExprClosure, Pat, ReturnType};

use crate::value::ungrouped;

/// The argument `settle`: the pattern of the output, and the number of units.
pub(crate) struct Settle {
    pub(crate) output: Pat,
    pub(crate) units: Expr,
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
