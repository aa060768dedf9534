//! `fallible`: the function returns `Result<Output, RateLimitError>`. Its body is a future of its
//! own, whose output is returned in `Ok`.
//!
//! Floor 2.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{
    AssocType, GenericArgument, Path, PathArguments, ReturnType, Token, Type, TypeGroup, TypeInfer,
    TypeParamBound, TypeParen, parse_quote, spanned::Spanned,
};

use crate::{return_type, tokens::spanned};

/// The argument `fallible` of a function, and the return type that was written.
pub(crate) struct Fallible {
    /// The type of the body's output, as written.
    output: Type,
    flag: Ident,
    private: TokenStream,
}

impl Fallible {
    /// Replaces the written output by a `Result` of it.
    pub(crate) fn new(written: &mut ReturnType, flag: &Ident, krate: &Path) -> Self {
        let (arrow, output) = match std::mem::replace(written, ReturnType::Default) {
            ReturnType::Type(arrow, output) => (arrow, *output),
            ReturnType::Default => (Token![->](Span::mixed_site()), parse_quote!(())),
        };
        let private = quote!(#krate::__private);
        let span = Span::mixed_site().located_at(output.span());
        let (result, error) = (spanned(&private, span), spanned(krate, span));
        let result = quote_spanned!(span=> #result::Result<#output, #error::RateLimitError>);
        *written = ReturnType::Type(arrow, Box::new(Type::Verbatim(result)));
        Self { output, flag: flag.clone(), private }
    }

    /// Returns the output of the body.
    pub(crate) fn output_of(&self, body: &TokenStream) -> TokenStream {
        let Self { output, flag, private } = self;
        let (at_flag, at_output) = (flag.span(), output.span());
        let mut output = output.clone();
        replace_impl(&mut output);
        // A type with a `_` cannot be checked for whether it carries refusals already.
        let never = if depends_on_impl(&output) {
            quote!(#private::never::<#output>())
        } else {
            let private = spanned(private, at_flag);
            quote_spanned!(at_flag=> #private::Output::<#output>::NEVER.not_yet_fallible())
        };
        output_of(body, &never, at_output)
    }

    /// Returns the tail expression of the function.
    pub(crate) fn returned(&self, output: &TokenStream) -> TokenStream {
        let private = &self.private;
        quote!(#private::Ok(#output))
    }
}

/// Returns the output of a body that runs in a future of its own, of a type that is written at
/// `at`.
///
/// The unreachable return of `never` gives the inner future this type: coercions and `?` work as
/// without the attribute.
fn output_of(body: &TokenStream, never: &TokenStream, at: Span) -> TokenStream {
    let never = quote_spanned!(at=> return #never;);
    quote! {
        async move {
            if false {
                #never
            }
            #body
        }.await
    }
}

/// Returns the output of a body, of the type `output`.
pub(crate) fn output_as(
    body: &TokenStream,
    mut output: Type,
    private: &TokenStream,
) -> TokenStream {
    let at = output.span();
    replace_impl(&mut output);
    output_of(body, &quote!(#private::never::<#output>()), at)
}

/// Returns `true` if an `impl Trait`, which is `_` here, may decide that the type carries refusals.
/// In a `Result` the error decides, unless there is none.
fn depends_on_impl(ty: &Type) -> bool {
    match ty {
        Type::Infer(_) => true,
        Type::Reference(ty) => depends_on_impl(&ty.elem),
        Type::Slice(ty) => depends_on_impl(&ty.elem),
        Type::Tuple(ty) => ty.elems.iter().any(depends_on_impl),
        Type::Path(ty) => ty.path.segments.last().is_some_and(|last| {
            let PathArguments::AngleBracketed(list) = &last.arguments else { return false };
            let in_arguments = list.args.iter().any(
                |argument| matches!(argument, GenericArgument::Type(ty) if depends_on_impl(ty)),
            );
            in_arguments && (last.ident != "Result" || return_type::is_infallible(last))
        }),
        _ => false,
    }
}

/// Replaces every `impl Trait`, which cannot be named in a body, by `_`.
fn replace_impl(ty: &mut Type) {
    match ty {
        Type::ImplTrait(it) => {
            let underscore_token = Token![_](it.span());
            *ty = Type::Infer(TypeInfer { attrs: Vec::new(), underscore_token });
        }
        Type::Paren(TypeParen { elem, .. }) | Type::Group(TypeGroup { elem, .. }) => {
            let inner = (**elem).clone();
            *ty = inner;
            replace_impl(ty);
        }
        Type::Tuple(it) => it.elems.iter_mut().for_each(replace_impl),
        Type::Array(it) => replace_impl(&mut it.elem),
        Type::Slice(it) => replace_impl(&mut it.elem),
        Type::Reference(it) => replace_impl(&mut it.elem),
        Type::Path(it) => replace_in_arguments(&mut it.path),
        Type::TraitObject(it) => {
            for bound in &mut it.bounds {
                if let TypeParamBound::Trait(bound) = bound {
                    replace_in_arguments(&mut bound.path);
                }
            }
        }
        _ => {}
    }
}

/// Replaces every `impl Trait` among the arguments of a path, as in `Vec<T>` and in
/// `Iterator<Item = T>`.
fn replace_in_arguments(path: &mut Path) {
    for segment in &mut path.segments {
        let PathArguments::AngleBracketed(list) = &mut segment.arguments else { continue };
        for argument in &mut list.args {
            if let GenericArgument::Type(ty) | GenericArgument::AssocType(AssocType { ty, .. }) =
                argument
            {
                replace_impl(ty);
            }
        }
    }
}
