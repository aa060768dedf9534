//! `policy = PATH`: the whole policy comes from a `const` or `static`.
//!
//! Floor 4.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, ExprPath, spanned::Spanned};

use crate::{combinations, errors::Errors, tokens::spanned, value::ungrouped};

/// The path of a policy that functions share.
pub(crate) struct SharedPolicy {
    pub(crate) path: ExprPath,
    /// `true` if the path is that of several plans.
    has_plans: bool,
    /// The functions that check the policy's own properties, each at the place of its error.
    checks: Vec<Ident>,
}

impl SharedPolicy {
    /// Returns the policy if `expr` is a path that a `static` can name, whatever function it stands
    /// on.
    pub(crate) fn new(expr: &Expr, has_plans: bool, errors: &mut Errors) -> Option<Self> {
        let path = match ungrouped(expr) {
            Expr::Path(path) if !path.path.is_ident("self") => path.clone(),
            _ => {
                errors.at(
                    expr,
                    "`policy` is the path of a `const` or `static` of type `Policy`, such as \
                     `limits::LOGIN`; write values of the call as `period` and `threshold`",
                );
                return None;
            }
        };
        let is_relative = path.path.segments.first().is_some_and(|it| it.ident == "Self");
        if is_relative || path.qself.is_some() {
            errors.at(
                &path,
                "a `static` cannot name this type: move the policy to a `const` of the module, \
                 or write the type without `Self` and generics",
            );
            return None;
        }
        Some(Self { path, has_plans, checks: Vec::new() })
    }

    /// Adds the check that an argument needs, if it is written. Its error is at the second of the
    /// two.
    pub(crate) fn check(&mut self, check: &str, argument: &str, written: &[Ident]) {
        let second = combinations::second(written, argument, "policy");
        self.checks.extend(second.map(|at| Ident::new(check, at.span())));
    }

    /// Returns the policy in the declaration of a callsite.
    pub(crate) fn tokens(&self, private: &TokenStream) -> TokenStream {
        let path = &self.path;
        let private = spanned(private, path.span());
        if self.has_plans {
            return quote_spanned!(path.span()=> &#path);
        }
        quote_spanned!(path.span()=> #private::shared_policy(#private::one_policy(&#path)))
    }

    /// Returns the constructor of a callsite.
    pub(crate) fn constructor(&self) -> Ident {
        Ident::new(if self.has_plans { "of_plans" } else { "new" }, Span::call_site())
    }

    /// Returns the items that check the policy's own properties at compile time.
    pub(crate) fn checks(&self, private: &TokenStream) -> TokenStream {
        let path = &self.path;
        self.checks
            .iter()
            .map(|name| {
                let (own, at) = (spanned(private, name.span()), name.span());
                if !self.has_plans {
                    let check = quote_spanned!(at=> #own::#name(&#path));
                    return quote!(const _: () = #check;);
                }
                let check = quote_spanned!(at=> #own::#name(__policy));
                // A binding cannot have the name of a constant, as that of the plans may be.
                quote! {
                    const _: () = {
                        let mut __plan = 0;
                        while let ::core::option::Option::Some(__policy) = #private::plan_at(&#path, __plan) {
                            #check;
                            __plan += 1;
                        }
                    };
                }
            })
            .collect()
    }

    /// Returns the path as it is written.
    pub(crate) fn text(&self) -> String {
        self.path.to_token_stream().to_string()
    }

    /// Returns the policy's name as a constant expression.
    pub(crate) fn name_tokens(&self) -> TokenStream {
        let path = &self.path;
        quote!(#path.name())
    }
}
