//! The item: attributes, visibility, signature and body as they were written, and the place where
//! a prologue goes.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{
    Attribute, ReturnType, Signature, Token, Visibility, braced,
    parse::{Parse, ParseStream},
    token::Brace,
};

use crate::errors::Errors;

pub(crate) struct Function {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    signature: Signature,
    /// Never parsed, so that a half-written body is still the user's and not the attribute's.
    body: Option<(Brace, TokenStream)>,
    semicolon: Option<Token![;]>,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let signature = input.parse()?;
        let semicolon: Option<Token![;]> = input.parse()?;
        let body = if semicolon.is_none() {
            let content;
            let brace = braced!(content in input);
            // A block in a block cannot have attributes of the function.
            attributes.extend(content.call(Attribute::parse_inner)?.into_iter().map(outer));
            Some((brace, content.parse()?))
        } else {
            None
        };
        Ok(Self { attributes, visibility, signature, body, semicolon })
    }
}

impl Function {
    /// Every rule about the item.
    pub(crate) fn judge(&self, errors: &mut Errors) {
        let name = &self.signature.ident;
        if self.body.is_none() {
            errors.at(&self.signature, format!("`#[rate_limit]` goes on a function with a body; put it on the implementations of `{name}`"));
        } else if self.signature.asyncness.is_none() {
            errors.at(self.signature.fn_token, format!("`#[rate_limit]` needs an `async fn`, because a store may have to be asked: write `async fn {name}`"));
        }
    }

    /// Whether the function has a `Self` type that the prologue can name.
    pub(crate) fn has_receiver(&self) -> bool {
        self.signature.receiver().is_some()
    }

    /// Where the user wrote what the function returns: its first token and its last; the name if
    /// it returns nothing.
    pub(crate) fn output_spans(&self) -> (Span, Span) {
        let written = match &self.signature.output {
            ReturnType::Type(_, output) => output.to_token_stream(),
            ReturnType::Default => self.signature.ident.to_token_stream(),
        };
        let mut tokens = written.into_iter();
        let first = tokens.next().map_or_else(Span::call_site, |token| token.span());
        (first, tokens.last().map_or(first, |token| token.span()))
    }

    /// The function with `prologue` in front of its body, which keeps its own block: what it
    /// declares cannot reach the prologue.
    pub(crate) fn with_prologue(&self, prologue: &TokenStream) -> TokenStream {
        let Self { attributes, visibility, signature, body, semicolon } = self;
        let body = body.as_ref().map(|(brace, statements)| {
            let mut body = TokenStream::new();
            brace.surround(&mut body, |body| {
                let mut inner = TokenStream::new();
                brace.surround(&mut inner, |inner| statements.to_tokens(inner));
                body.extend(quote!(#prologue #inner));
            });
            body
        });
        quote!(#(#attributes)* #visibility #signature #body #semicolon)
    }
}

impl ToTokens for Function {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.with_prologue(&TokenStream::new()).to_tokens(tokens);
    }
}

fn outer(attribute: Attribute) -> Attribute {
    Attribute { style: syn::AttrStyle::Outer, ..attribute }
}
