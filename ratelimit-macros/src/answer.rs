//! The answer to a call: the decision that the body sees, and the value that is returned for a
//! refusal.
//!
//! Floor 4.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, ExprClosure, Pat, ReturnType, spanned::Spanned};

use crate::{args::Args, errors::Errors, function::Function, value::ungrouped};

/// The arguments `decision`, `soft` and `otherwise`.
#[derive(Default)]
pub(crate) struct Answer {
    /// The name of the decision in the body.
    pub(crate) decision: Option<Ident>,
    /// `true` if the body also runs when the call is refused.
    pub(crate) is_soft: bool,
    /// The value that is returned instead of the rejection.
    pub(crate) otherwise: Option<Otherwise>,
}

/// The argument `otherwise`: an expression, and the pattern of the error in it.
pub(crate) struct Otherwise {
    error: Option<Pat>,
    value: Expr,
}

impl Answer {
    /// Validates the arguments.
    pub(crate) fn validate(args: &mut Args, errors: &mut Errors) -> Self {
        Self {
            decision: args.decision.take().and_then(|it| validate_name(&it.value, errors)),
            is_soft: args.soft.is_some(),
            otherwise: args.otherwise.take().and_then(|it| errors.or(Otherwise::new(it.value))),
        }
    }

    /// Returns `true` if the call is answered as without these arguments.
    pub(crate) fn is_plain(&self) -> bool {
        self.decision.is_none() && self.otherwise.is_none()
    }
}

impl Otherwise {
    fn new(expr: Expr) -> syn::Result<Self> {
        let closure = match ungrouped(&expr) {
            Expr::Closure(closure) => closure.clone(),
            _ => return Ok(Self { error: None, value: expr }),
        };
        let ExprClosure { asyncness, inputs, output, body, .. } = closure;
        let error = |at: &dyn ToTokens, message| {
            Err(syn::Error::new_spanned(at.to_token_stream(), message))
        };
        if let Some(keyword) = asyncness {
            return error(&keyword, "the value of `otherwise` may await: write `|error|`");
        }
        if let ReturnType::Type(arrow, _) = output {
            return error(&arrow, "`otherwise` has the function's return type; remove this one");
        }
        if inputs.len() != 1 {
            let message = "`otherwise` has one parameter, the error: write `|error| ..`";
            return error(&expr, message);
        }
        Ok(Self { error: inputs.into_iter().next(), value: *body })
    }

    /// Returns the pattern of the refusal.
    pub(crate) fn pattern(&self, refusal: &Ident) -> TokenStream {
        if self.error.is_some() { refusal.to_token_stream() } else { quote!(_) }
    }

    /// Returns the statements that end a refused call.
    pub(crate) fn tokens(
        &self,
        function: &Function,
        refusal: &Ident,
        private: &TokenStream,
    ) -> TokenStream {
        let Self { error, value } = self;
        let error = error.as_ref().map(|error| quote!(let #error = #refusal;));
        match value {
            // As written by hand: a `return ();` is one word too many.
            Expr::Tuple(unit) if unit.elems.is_empty() => {
                quote_spanned!(unit.span()=> #error return)
            }
            value => {
                let value = function.localize(value);
                if function.never_returns() {
                    return quote!(#error #value);
                }
                // `return panic!(..)` warns of unreachable code, and the user may forbid an
                // `allow`. In a branch it does not warn.
                let value = if begins_as_statement(&value) { quote!((#value)) } else { value };
                quote!(#error return if false { #private::never() } else { #value })
            }
        }
    }
}

/// Returns `true` for `if a { b } else { c } + d` and its like, whose start is a statement in a
/// block.
fn begins_as_statement(value: &TokenStream) -> bool {
    match value.clone().into_iter().next() {
        Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Brace,
        Some(TokenTree::Ident(word)) => {
            ["if", "match", "unsafe", "loop", "while", "for"].iter().any(|it| word == it)
        }
        _ => false,
    }
}

/// Returns the name if it is one that a variable can have.
fn validate_name(name: &Expr, errors: &mut Errors) -> Option<Ident> {
    match ungrouped(name) {
        Expr::Path(path) if path.path.get_ident().is_some_and(|name| name != "self") => {
            path.path.get_ident().cloned()
        }
        _ => {
            errors.at(name, "`decision` is a new name for the body, such as `decision = quota`");
            None
        }
    }
}
