//! The argument `on_store_error`: a word, or `local` with a share.
//!
//! Floor 3.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Expr, ExprLit, Lit};

use crate::value;

/// The words of `on_store_error`, each with its variant of the runtime's `OnStoreError`.
const ON_STORE_ERROR: [(&str, &str); 3] =
    [("local", "Local"), ("deny", "Deny"), ("allow", "Allow")];

/// The answer if Redis cannot decide.
pub(crate) struct StoreErrorAnswer {
    /// As it is written.
    pub(crate) text: String,
    /// The variant or the constructor of the runtime's `OnStoreError`.
    pub(crate) tokens: TokenStream,
}

impl StoreErrorAnswer {
    /// Parses a word, or `local` with a share of 1 to 100.
    pub(crate) fn new(expr: &Expr) -> syn::Result<Self> {
        let Expr::Call(call) = value::ungrouped(expr) else {
            let variant = value::word("on_store_error", expr, &ON_STORE_ERROR)?;
            let (text, variant) = (variant.to_lowercase(), format_ident!("{variant}"));
            return Ok(Self { text, tokens: quote!(#variant) });
        };
        let is_local = matches!(&*call.func, Expr::Path(it) if it.path.is_ident("local"));
        let percent = match (is_local, call.args.first(), call.args.len()) {
            (true, Some(Expr::Lit(ExprLit { lit: Lit::Int(share), .. })), 1) => {
                share.base10_parse::<u8>().ok()
            }
            _ => None,
        };
        let Some(percent) = percent.filter(|it| (1..=100).contains(it)) else {
            let message =
                "`on_store_error` takes a share as `local(20)`: a literal of 1 to 100, in percent";
            return Err(syn::Error::new_spanned(expr, message));
        };
        Ok(Self { text: format!("local({percent})"), tokens: quote!(local::<#percent>()) })
    }
}
