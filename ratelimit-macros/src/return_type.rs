//! The written return type, and the trait of the runtime by which a refusal becomes its value.
//!
//! Every type with `FromRejection` implements these traits. They differ in the compile error for
//! the other types: each names the ways out for the types of its row.
//!
//! Floor 1.

use proc_macro2::Ident;
use syn::{
    GenericArgument, Path, PathArguments, PathSegment, Type, TypeGroup, TypeImplTrait,
    TypeParamBound, TypeParen,
};

/// Types of the standard library and the frameworks, by their names alone.
const FOREIGN_TYPES: &str = "Arc Body Box Bytes Form HashMap Html Infallible Json NamedFile NoContent \
                             Redirect Sse StatusCode String Vec";

/// The first names of paths into other crates.
const FOREIGN_CRATES: &str = "actix_files actix_web axum axum_extra core hyper io poem reqwest rocket \
                              salvo sqlx std tonic warp";

/// The crates of frameworks that do not answer a `RateLimitError`, with the traits for results of
/// their errors.
const FRAMEWORKS: [(&str, &str); 4] = [
    ("poem", "RefusalAsPoemError"),
    ("rocket", "RefusalAsRocketStatus"),
    ("salvo", "RefusalAsSalvoError"),
    ("warp", "RefusalAsWarpRejection"),
];

/// Returns the trait for a type in a signature; `None` for `FromRejection` itself.
pub(crate) fn refusal_as(output: &Type) -> Option<&'static str> {
    let output = ungrouped(output);
    match output {
        Type::Tuple(tuple) if tuple.elems.is_empty() => Some("RefusalAsUnit"),
        Type::Never(_) => Some("RefusalAsNever"),
        Type::ImplTrait(output) => Some(match bound(output).as_deref() {
            Some("IntoResponse") => "RefusalAsIntoResponse",
            Some("Responder") => "RefusalAsResponder",
            _ => "RefusalAsImplTrait",
        }),
        Type::Path(path) => match path.path.segments.last() {
            Some(last) if last.ident == "Option" => Some("RefusalAsOption"),
            Some(last) if last.ident == "Result" => {
                if is_infallible(last) {
                    return Some("RefusalAsInfallible");
                }
                // An alias such as `io::Result<T>` names no error: its own path tells the crate.
                let error = error(last).unwrap_or(output);
                framework(error).or(is_foreign(error).then_some("RefusalAsForeignError"))
            }
            _ => is_foreign(output).then_some("RefusalAsForeign"),
        },
        _ => is_foreign(output).then_some("RefusalAsForeign"),
    }
}

/// Returns the name of the first trait of an `impl Trait`.
fn bound(output: &TypeImplTrait) -> Option<String> {
    output.bounds.iter().find_map(|bound| match bound {
        TypeParamBound::Trait(bound) => Some(bound.path.segments.last()?.ident.to_string()),
        _ => None,
    })
}

/// Returns `E` of a `Result<T, E>`; `None` for an alias like `io::Result<T>`.
fn error(result: &PathSegment) -> Option<&Type> {
    let PathArguments::AngleBracketed(list) = &result.arguments else { return None };
    match list.args.get(1)? {
        GenericArgument::Type(error) => Some(ungrouped(error)),
        _ => None,
    }
}

/// Returns the type inside parentheses, and inside the invisible group of a macro's parameter.
pub(crate) fn ungrouped(ty: &Type) -> &Type {
    match ty {
        Type::Group(TypeGroup { elem, .. }) | Type::Paren(TypeParen { elem, .. }) => {
            ungrouped(elem)
        }
        other => other,
    }
}

/// Returns `true` for a `Result<T, Infallible>`.
pub(crate) fn is_infallible(result: &PathSegment) -> bool {
    let Some(Type::Path(error)) = error(result) else { return false };
    error.path.segments.last().is_some_and(|last| last.ident == "Infallible")
}

/// Returns the trait for a result with this error, or of this alias, of one of the [`FRAMEWORKS`].
fn framework(ty: &Type) -> Option<&'static str> {
    let Type::Path(path) = ty else { return None };
    let krate = &path.path.segments.first()?.ident;
    FRAMEWORKS.iter().find(|(name, _)| krate == name).map(|(_, row)| *row)
}

/// Returns `true` for a type of another crate, for which users can implement no trait of the
/// runtime.
fn is_foreign(ty: &Type) -> bool {
    match ungrouped(ty) {
        Type::Path(path) => is_foreign_path(&path.path),
        Type::Array(_) | Type::Reference(_) | Type::Tuple(_) => true,
        _ => false,
    }
}

/// Returns `true` for a primitive type, and for a path that starts or ends in a foreign name.
fn is_foreign_path(path: &Path) -> bool {
    let is = |segment: Option<&PathSegment>, names: &str| {
        segment.is_some_and(|segment| names.split_whitespace().any(|name| segment.ident == name))
    };
    let is_primitive = |name: &Ident| name.to_string().starts_with(char::is_lowercase);
    path.get_ident().is_some_and(is_primitive)
        || is(path.segments.last(), FOREIGN_TYPES)
        || (path.segments.len() > 1 && is(path.segments.first(), FOREIGN_CRATES))
}
