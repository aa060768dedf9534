//! `fallible`: the function returns `Result<Output, RateLimitError>`. Its body is a future of its own, whose
//! output is returned in `Ok`.
//!
//! Floor 2.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{
    AssocType, GenericArgument, Path, PathArguments, ReturnType, Token, Type, TypeInfer,
    TypeParamBound, parse_quote, spanned::Spanned,
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
        let output = without_impl(output.clone());
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

/// Returns the output of a body that runs in a future of its own, of a type that is written at `at`.
///
/// The unreachable return of `never` gives the inner future this type: coercions and `?` work as without
/// the attribute.
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
pub(crate) fn output_as(body: &TokenStream, output: Type, private: &TokenStream) -> TokenStream {
    let at = output.span();
    let output = without_impl(output);
    output_of(body, &quote!(#private::never::<#output>()), at)
}

/// Returns `true` if an `impl Trait`, which is `_` here, may decide that the type carries refusals. In a
/// `Result` the error decides, unless there is none.
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

/// Returns the type with `_` for every `impl Trait`, which cannot be named in a body.
fn without_impl(ty: Type) -> Type {
    match ty {
        Type::ImplTrait(ty) => {
            let underscore_token = Token![_](ty.span());
            Type::Infer(TypeInfer { attrs: Vec::new(), underscore_token })
        }
        Type::Paren(ty) => without_impl(*ty.elem),
        Type::Group(ty) => without_impl(*ty.elem),
        Type::Tuple(mut ty) => {
            for elem in &mut ty.elems {
                *elem = without_impl(elem.clone());
            }
            Type::Tuple(ty)
        }
        Type::Array(mut ty) => {
            *ty.elem = without_impl(*ty.elem);
            Type::Array(ty)
        }
        Type::Slice(mut ty) => {
            *ty.elem = without_impl(*ty.elem);
            Type::Slice(ty)
        }
        Type::Reference(mut ty) => {
            *ty.elem = without_impl(*ty.elem);
            Type::Reference(ty)
        }
        Type::Path(mut ty) => {
            replace_impl(&mut ty.path);
            Type::Path(ty)
        }
        Type::TraitObject(mut ty) => {
            for bound in &mut ty.bounds {
                if let TypeParamBound::Trait(bound) = bound {
                    replace_impl(&mut bound.path);
                }
            }
            Type::TraitObject(ty)
        }
        other => other,
    }
}

/// Replaces every `impl Trait` among the arguments of a path, as in `Vec<T>` and in `Iterator<Item = T>`.
fn replace_impl(path: &mut Path) {
    for segment in &mut path.segments {
        let PathArguments::AngleBracketed(list) = &mut segment.arguments else { continue };
        for argument in &mut list.args {
            let (GenericArgument::Type(ty) | GenericArgument::AssocType(AssocType { ty, .. })) =
                argument
            else {
                continue;
            };
            *ty = without_impl(ty.clone());
        }
    }
}
