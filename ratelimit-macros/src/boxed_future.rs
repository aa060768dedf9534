//! Functions that return a boxed future: `Box::pin(async move { .. })`. `#[async_trait]` rewrites
//! methods into this form.
//!
//! Floor 2.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{
    Block, Expr, ExprAsync, ExprBlock, ExprCall, ExprIf, ExprLet, GenericArgument, Local, Pat,
    Path, PathArguments, ReturnType, Stmt, Type, TypeParamBound,
};

use crate::tokens::{bound_names, contains};

/// A body that ends in `Box::pin(async move { .. })`.
pub(crate) struct Boxed {
    /// The statements before the future.
    before: Vec<Stmt>,
    pin: Expr,
    future: ExprAsync,
    /// The number of statements of the future before the prologue: those that only rebind the
    /// arguments to the names of the user's body.
    bindings: usize,
}

impl Boxed {
    /// Parses a body; `None` if it does not end in a boxed future.
    pub(crate) fn parse(body: &TokenStream) -> Option<Self> {
        let mut before = syn::parse::Parser::parse2(Block::parse_within, body.clone()).ok()?;
        let Some(Stmt::Expr(Expr::Call(call), None)) = before.pop() else { return None };
        let ExprCall { func, args, .. } = call;
        let is_pin = matches!(&*func, Expr::Path(path) if ends_in(&path.path, "pin"));
        let [Expr::Async(future)] = &args.into_iter().collect::<Vec<_>>()[..] else { return None };
        let bindings = future.block.stmts.iter().take_while(|it| is_binding(it)).count();
        is_pin.then(|| Self { before, pin: *func, future: future.clone(), bindings })
    }

    /// Returns the first statement that would run on refused calls too.
    pub(crate) fn runs_too_early(&self) -> Option<&Stmt> {
        self.before.iter().find(|it| match it {
            Stmt::Item(_) => false,
            Stmt::Local(Local { init: Some(init), .. }) => {
                !is_binding(it) && (init.diverge.is_some() || !only_copies(&init.expr))
            }
            _ => true,
        })
    }

    /// Returns the output of the future, if the signature has it.
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

    /// Returns the names that the statements before the body bind to parameters.
    pub(crate) fn parameters(&self) -> Vec<&Ident> {
        let bindings = self.future.block.stmts[..self.bindings].iter();
        let names = bindings.map(|binding| match binding {
            Stmt::Local(local) => bound_names(&local.pat),
            _ => Vec::new(),
        });
        names.flatten().collect()
    }

    /// Returns `true` if the body names the parameter, and the future does not bind it anew.
    pub(crate) fn captures(&self, name: &Ident) -> bool {
        let Self { before, future, .. } = self;
        let body = quote!(#(#before)* #future);
        contains(&body, &name.to_string()) && !self.parameters().contains(&name)
    }

    /// Returns the tokens with `self` under its name at the position of the prologue.
    pub(crate) fn with_self_renamed(&self, tokens: TokenStream) -> TokenStream {
        let bindings = &self.future.block.stmts[..self.bindings];
        if bindings.iter().any(|statement| binds(statement, "__self")) {
            rename_self(tokens)
        } else {
            tokens
        }
    }

    /// Returns the body with `prologue` inside the future, and the rest as `wrap` makes it.
    pub(crate) fn with_prologue(
        &self,
        prologue: &TokenStream,
        wrap: impl FnOnce(&TokenStream) -> TokenStream,
    ) -> TokenStream {
        let Self { before, pin, future, bindings } = self;
        let ExprAsync { attrs, async_token, capture, block, .. } = future;
        let (bindings, body) = block.stmts.split_at(*bindings);
        let mut inner = TokenStream::new();
        block.brace_token.surround(&mut inner, |inner| {
            let body = wrap(&quote!(#(#body)*));
            inner.extend(quote!(#(#bindings)* #prologue #body));
        });
        quote!(#(#before)* #pin(#(#attrs)* #async_token #capture #inner))
    }
}

/// Returns `true` for the statements of `#[async_trait]` before the body, which have no effect:
/// `let a = a;`, `let __self = self;`, `let (a, b) = { let __arg1 = __arg1; __arg1 };`, and
/// `if let Some(__ret) = None::<R> { .. }`.
fn is_binding(statement: &Stmt) -> bool {
    match statement {
        Stmt::Local(Local { pat, init: Some(init), .. }) if init.diverge.is_none() => {
            let value = match &*init.expr {
                Expr::Block(ExprBlock { block, .. }) => match &block.stmts[..] {
                    [moves @ .., Stmt::Expr(value, None)] if moves.iter().all(is_binding) => value,
                    _ => return false,
                },
                value => value,
            };
            let Some(value) = name(value).map(Ident::to_string) else { return false };
            let is_same = match pat {
                Pat::Ident(pat) if pat.ident == "__self" => value == "self",
                Pat::Ident(pat) => pat.ident == value,
                _ => false,
            };
            is_same || value.starts_with("__arg")
        }
        Stmt::Expr(Expr::If(ExprIf { cond, else_branch: None, .. }), _) => {
            let Expr::Let(ExprLet { pat, expr, .. }) = &**cond else { return false };
            let (Pat::TupleStruct(pat), Expr::Path(value)) = (&**pat, &**expr) else {
                return false;
            };
            ends_in(&pat.path, "Some") && ends_in(&value.path, "None")
        }
        _ => false,
    }
}

/// Returns `true` if an expression only names, copies or clones values for the future.
fn only_copies(expression: &Expr) -> bool {
    match expression {
        Expr::Path(_) | Expr::Lit(_) => true,
        Expr::Field(it) => only_copies(&it.base),
        Expr::Reference(it) => only_copies(&it.expr),
        Expr::Paren(it) => only_copies(&it.expr),
        Expr::Tuple(it) => it.elems.iter().all(only_copies),
        Expr::MethodCall(it) => {
            let copies = ["clone", "to_owned", "to_string", "to_vec", "into", "as_ref", "as_str"];
            it.args.is_empty()
                && copies.iter().any(|name| it.method == name)
                && only_copies(&it.receiver)
        }
        Expr::Call(it) => {
            let is_clone = matches!(&*it.func, Expr::Path(path) if ends_in(&path.path, "clone"));
            is_clone && it.args.iter().all(only_copies)
        }
        _ => false,
    }
}

fn name(expression: &Expr) -> Option<&Ident> {
    match expression {
        Expr::Path(path) => path.path.get_ident(),
        _ => None,
    }
}

fn ends_in(path: &Path, name: &str) -> bool {
    path.segments.last().is_some_and(|segment| segment.ident == name)
}

fn binds(statement: &Stmt, name: &str) -> bool {
    matches!(statement, Stmt::Local(Local { pat: Pat::Ident(pat), .. }) if pat.ident == name)
}

/// Returns the only type argument of `Pin<..>` or `Box<..>`.
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

/// Replaces `self` by `__self`.
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
