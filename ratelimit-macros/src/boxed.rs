//! An `async fn` that another attribute has already turned into a function returning a boxed
//! future, as `#[async_trait]` does with the methods below it: `Box::pin(async move { .. })`.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{
    Block, Expr, ExprAsync, ExprCall, GenericArgument, Local, Pat, PathArguments, ReturnType, Stmt,
    Type, TypeParamBound,
};

/// A body that ends in `Box::pin(async move { .. })`.
pub(crate) struct Boxed {
    /// What stands before the future.
    before: Vec<Stmt>,
    pin: Expr,
    future: ExprAsync,
    /// The statement in the future that the prologue goes in front of: the user's own body, behind
    /// the arguments' bindings.
    body: usize,
}

impl Boxed {
    pub(crate) fn parse(body: &TokenStream) -> Option<Self> {
        let mut before = syn::parse::Parser::parse2(Block::parse_within, body.clone()).ok()?;
        let Some(Stmt::Expr(Expr::Call(call), None)) = before.pop() else { return None };
        let ExprCall { func, args, .. } = call;
        let is_pin =
            matches!(&*func, Expr::Path(path) if path.path.segments.last()?.ident == "pin");
        let [Expr::Async(future)] = &args.into_iter().collect::<Vec<_>>()[..] else { return None };
        let body = future.block.stmts.iter().position(is_body).unwrap_or(0);
        is_pin.then(|| Self { before, pin: *func, future: future.clone(), body })
    }

    /// What the future gives, as far as the signature tells.
    pub(crate) fn output(output: &ReturnType) -> Option<TokenStream> {
        let ReturnType::Type(_, pinned) = output else { return None };
        let Type::TraitObject(future) = argument(argument(pinned)?)? else { return None };
        future.bounds.iter().find_map(|bound| {
            let TypeParamBound::Trait(bound) = bound else { return None };
            let PathArguments::AngleBracketed(list) = &bound.path.segments.last()?.arguments else {
                return None;
            };
            list.args.iter().find_map(|argument| match argument {
                GenericArgument::AssocType(output) if output.ident == "Output" => {
                    Some(output.ty.to_token_stream())
                }
                _ => None,
            })
        })
    }

    /// The same tokens, with `self` under the name it has where the prologue goes.
    pub(crate) fn with_self_renamed(&self, tokens: TokenStream) -> TokenStream {
        let bindings = &self.future.block.stmts[..self.body];
        if bindings.iter().any(|statement| binds(statement, "__self")) {
            rename_self(tokens)
        } else {
            tokens
        }
    }

    pub(crate) fn with_prologue(&self, prologue: &TokenStream) -> TokenStream {
        let Self { before, pin, future, body } = self;
        let ExprAsync { attrs, async_token, capture, block, .. } = future;
        let (bindings, body) = block.stmts.split_at(*body);
        let mut inner = TokenStream::new();
        block.brace_token.surround(&mut inner, |inner| {
            inner.extend(quote!(#(#bindings)* #prologue #(#body)*));
        });
        quote!(#(#before)* #pin(#(#attrs)* #async_token #capture #inner))
    }
}

/// `let __ret: R = { .. };`, `let _: () = { .. };`, or the block alone.
fn is_body(statement: &Stmt) -> bool {
    match statement {
        Stmt::Local(Local { init: Some(init), pat: Pat::Type(pat), .. }) => {
            let is_result = match &*pat.pat {
                Pat::Ident(name) => name.ident == "__ret",
                pattern => matches!(pattern, Pat::Wild(_)),
            };
            is_result && matches!(&*init.expr, Expr::Block(_))
        }
        Stmt::Expr(Expr::Block(_), _) => true,
        _ => false,
    }
}

fn binds(statement: &Stmt, name: &str) -> bool {
    matches!(statement, Stmt::Local(Local { pat: Pat::Ident(pat), .. }) if pat.ident == name)
}

/// The one type argument of `Pin<..>` and `Box<..>`.
fn argument(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let PathArguments::AngleBracketed(list) = &path.path.segments.last()?.arguments else {
        return None;
    };
    match list.args.first()? {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    }
}

fn rename_self(tokens: TokenStream) -> TokenStream {
    tokens
        .into_iter()
        .map(|token| match token {
            TokenTree::Ident(ident) if ident == "self" => Ident::new("__self", ident.span()).into(),
            TokenTree::Group(group) => {
                let mut renamed = Group::new(group.delimiter(), rename_self(group.stream()));
                renamed.set_span(group.span());
                renamed.into()
            }
            other => other,
        })
        .collect()
}
