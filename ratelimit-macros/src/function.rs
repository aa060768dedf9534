//! The annotated item: attributes, visibility, signature and body as written.
//!
//! Floor 3.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{
    Attribute, FnArg, Item, Path, ReturnType, Signature, Token, Type, TypeParamBound, Visibility,
    braced,
    parse::{Parse, ParseStream},
    parse_quote,
    token::Brace,
};

use crate::{
    boxed_future::Boxed,
    errors::Errors,
    fallible::Fallible,
    return_type,
    tokens::{bound_names, spanned},
};

/// Advice where a macro for mocks has copied the attribute, such as to `expect_get` of a method
/// `get`.
const COPIED: &str = "if `#[automock]` has copied it here, put `#[rate_limit]` on the \
                      implementations of the trait, or on a function that the method calls";

/// A function, with its body as raw tokens.
pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    pub(crate) body: Option<(Brace, Body)>,
    pub(crate) semicolon: Option<Token![;]>,
    pub(crate) fallible: Option<Fallible>,
}

/// The body of a function.
pub(crate) enum Body {
    /// Not parsed, so that errors in a half-written body are reported as without the attribute.
    Plain(TokenStream),
    Boxed(Box<Boxed>),
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let signature: Signature = input.parse()?;
        let semicolon: Option<Token![;]> = input.parse()?;
        let body = if semicolon.is_none() {
            let content;
            let brace = braced!(content in input);
            // A block in a block cannot have attributes of the function.
            attributes.extend(content.call(Attribute::parse_inner)?.into_iter().map(outer));
            let body: TokenStream = content.parse()?;
            let boxed = signature.asyncness.is_none().then(|| Boxed::parse(&body)).flatten();
            Some(match boxed {
                Some(boxed) => (brace, Body::Boxed(Box::new(boxed))),
                None => (brace, Body::Plain(body)),
            })
        } else {
            None
        };
        Ok(Self { attributes, visibility, signature, body, semicolon, fallible: None })
    }
}

impl Function {
    /// Parses the item.
    ///
    /// # Errors
    ///
    /// The item, if there is one, and an error at its first token if it is no function, otherwise
    /// at the first unexpected token.
    pub(crate) fn parse_item(
        item: &TokenStream,
    ) -> Result<Self, (Option<&TokenStream>, syn::Error)> {
        syn::parse2(item.clone()).map_err(|error| {
            let is_fn =
                |token: &TokenTree| matches!(token, TokenTree::Ident(ident) if ident == "fn");
            if item.clone().into_iter().any(|token| is_fn(&token)) {
                return (Some(item), error);
            }
            let first = item.clone().into_iter().next();
            if syn::parse2::<Item>(item.clone()).is_ok() {
                let message = "`#[rate_limit]` goes on an `async fn`";
                return (Some(item), syn::Error::new_spanned(first, message));
            }
            let message = format!(
                "`#[rate_limit]` goes on an `async fn`, no statement or closure: call a limited \
                 function in it; {COPIED}"
            );
            // The compiler would not read an error after a statement.
            (None, syn::Error::new_spanned(first, message))
        })
    }

    /// Validates the item.
    pub(crate) fn validate(&self, errors: &mut Errors) {
        let Signature { asyncness, constness, fn_token, ident: name, .. } = &self.signature;
        match &self.body {
            None => errors.at(
                &self.signature,
                format!(
                    "`#[rate_limit]` goes on a function with a body: on the implementations of \
                     `{name}`, or on a default body here"
                ),
            ),
            Some(_) if constness.is_some() => {
                errors.at(constness, "a `const fn` cannot ask a rate limiter; write `async fn`");
            }
            Some((_, Body::Plain(_))) if asyncness.is_none() => {
                let instead = self.instead_of_no_async();
                errors.at(
                    fn_token,
                    format!(
                        "`#[rate_limit]` goes on an `async fn`, because a store may have to be \
                         asked: {instead}"
                    ),
                );
            }
            Some((_, Body::Boxed(boxed))) => {
                if let Some(statement) = boxed.runs_too_early() {
                    errors.at(
                        statement,
                        "this would run on refused calls too, because the limit is asked in the \
                         `async` block: move it into that block; only what gives the block a name \
                         or a clone, as `let this = self.clone();`, may stand here",
                    );
                }
            }
            Some(_) => {}
        }
    }

    /// Returns what to write for a function that is not `async`, by the macro that may have made
    /// it.
    fn instead_of_no_async(&self) -> String {
        let Signature { ident: name, output, .. } = &self.signature;
        if name.to_string().starts_with("expect_") {
            return COPIED.to_owned();
        }
        if is_future(output) {
            return format!(
                "write `async fn {name}`, which returns the output of this future; if \
                 `#[trait_variant::make]` has made it of an `async fn`, put `#[rate_limit]` on the \
                 implementations of the trait"
            );
        }
        if is_boxed_future(output) {
            return format!(
                "write `async fn {name}`, or end its body with `Box::pin(async move {{ .. }})`, in \
                 which the limit is asked"
            );
        }
        format!(
            "write `async fn {name}`; if another attribute has taken the `async` away, as \
             `#[tokio::main]` and `#[tokio::test]` do, put `#[rate_limit]` above it"
        )
    }

    /// Validates that the return type can be changed, for the argument `flag`.
    pub(crate) fn validate_fallible(&self, flag: &Ident, errors: &mut Errors) {
        if let Some((_, Body::Boxed(_))) = self.body {
            errors.at(
                flag,
                "`fallible` does not reach into a future that is boxed already, as `#[async_trait]` \
                 and hand-written ones are: write `Result<.., RateLimitError>` in the signature",
            );
        }
        if self.never_returns() {
            errors.at(
                self.output(),
                "`fallible` returns a `Result` of the written type, and Rust has none of `!`: write \
                 `-> std::convert::Infallible`, and leave the body as it is",
            );
        }
    }

    /// Changes the return type to `Result<Output, RateLimitError>`, for the argument `flag`.
    pub(crate) fn make_fallible(&mut self, flag: &Ident, krate: &Path) {
        // Otherwise there is an error, and the signature stays for the function's callers.
        if self.signature.asyncness.is_some() && !self.never_returns() {
            let output = &mut self.signature.output;
            self.fallible = Some(Fallible::new(output, flag, krate));
        }
    }

    /// Returns the conversion of a refusal into the output. If the output cannot carry it, the
    /// compiler marks the output from its first token to its last.
    pub(crate) fn refused(&self, krate: &Path, refusal: &Ident) -> TokenStream {
        if self.fallible.is_some() {
            return quote!(#krate::__private::Err(#refusal));
        }
        let (first, last) = self.output_spans();
        let krate = spanned(krate, first);
        let refusal_as = match self.body {
            Some((_, Body::Boxed(_))) => Some("RefusalInBox"),
            _ => return_type::refusal_as(&self.output()),
        };
        let refusal_as = refusal_as.map_or_else(
            || quote_spanned!(last=> FromRejection),
            |name| {
                let name = Ident::new(name, last);
                quote_spanned!(last=> __private::#name)
            },
        );
        let refused = quote_spanned!(last=> #refusal_as::from_rejection(#refusal));
        quote!(#krate::#refused)
    }

    /// Returns `true` if the prologue can name a `Self` type.
    pub(crate) fn has_receiver(&self) -> bool {
        self.signature.receiver().is_some()
    }

    /// Returns `true` if a parameter has this name.
    pub(crate) fn has_parameter(&self, name: &Ident) -> bool {
        self.parameters().contains(&name)
    }

    /// Returns the names of the parameters.
    pub(crate) fn parameters(&self) -> Vec<&Ident> {
        let in_signature = self.signature.inputs.iter().flat_map(|input| match input {
            FnArg::Receiver(_) => Vec::new(),
            FnArg::Typed(input) => bound_names(&input.pat),
        });
        let in_body = match &self.body {
            Some((_, Body::Boxed(boxed))) => boxed.parameters(),
            _ => Vec::new(),
        };
        in_signature.chain(in_body).collect()
    }

    /// Returns `true` if a type parameter of the function has this name.
    pub(crate) fn has_type_parameter(&self, name: &Ident) -> bool {
        self.signature.generics.type_params().any(|parameter| parameter.ident == *name)
    }

    /// Returns the tokens of an argument's expression for the position of the prologue.
    pub(crate) fn localize(&self, expression: impl ToTokens) -> TokenStream {
        match &self.body {
            Some((_, Body::Boxed(boxed))) => boxed.with_self_renamed(expression.to_token_stream()),
            _ => expression.to_token_stream(),
        }
    }

    /// Returns the type of the body's output; `_` for a boxed future that does not name it.
    pub(crate) fn output(&self) -> Type {
        let output = &self.signature.output;
        match (&self.body, output) {
            (Some((_, Body::Boxed(_))), _) => {
                let output = Boxed::output(output).map(|output| parse_quote!(#output));
                output.unwrap_or_else(|| parse_quote!(_))
            }
            (_, ReturnType::Type(_, output)) => (**output).clone(),
            (_, ReturnType::Default) => parse_quote!(()),
        }
    }

    /// Returns `true` if the output is `!`.
    pub(crate) fn never_returns(&self) -> bool {
        matches!(return_type::ungrouped(&self.output()), Type::Never(_))
    }

    /// Returns `true` if a boxed future uses the parameter under the name that it has outside.
    pub(crate) fn is_captured(&self, name: &Ident) -> bool {
        matches!(&self.body, Some((_, Body::Boxed(boxed))) if boxed.captures(name))
    }

    /// Returns the spans of the first and the last token of the written output, or of the
    /// function's name if there is none.
    fn output_spans(&self) -> (Span, Span) {
        let Signature { output, ident: name, .. } = &self.signature;
        let boxed = matches!(self.body, Some((_, Body::Boxed(_))));
        let future_output = boxed.then(|| Boxed::output(output)).flatten();
        let written = future_output.unwrap_or_else(|| match output {
            ReturnType::Type(_, output) => output.to_token_stream(),
            ReturnType::Default => name.to_token_stream(),
        });
        let mut tokens = written.into_iter();
        let first = tokens.next().map_or_else(|| name.span(), |token| token.span());
        (first, tokens.last().map_or(first, |token| token.span()))
    }
}

/// Returns `true` for `impl Future<..>`.
fn is_future(output: &ReturnType) -> bool {
    let ReturnType::Type(_, output) = output else { return false };
    let Type::ImplTrait(output) = &**output else { return false };
    output.bounds.iter().any(|bound| match bound {
        TypeParamBound::Trait(bound) => {
            bound.path.segments.last().is_some_and(|it| it.ident == "Future")
        }
        _ => false,
    })
}

/// Returns `true` for `Pin<..>` and for names such as `BoxFuture<..>` and `Self::Future`.
fn is_boxed_future(output: &ReturnType) -> bool {
    let ReturnType::Type(_, output) = output else { return false };
    let Type::Path(output) = &**output else { return false };
    output.path.segments.last().is_some_and(|last| {
        let name = last.ident.to_string();
        name == "Pin" || name.ends_with("Future")
    })
}

/// Returns an inner attribute as an outer one.
fn outer(attribute: Attribute) -> Attribute {
    Attribute { style: syn::AttrStyle::Outer, ..attribute }
}
