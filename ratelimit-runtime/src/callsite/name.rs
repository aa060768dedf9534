//! The default names of policies: the functions' paths in the source, whatever macro wraps them.

use std::{borrow::Cow, collections::HashMap, ptr, sync::OnceLock};

use super::Callsite;

/// Returns the name of a function: its path, with a number if other functions have the same path.
pub(super) fn of(site: &Callsite) -> &'static str {
    static NAMES: OnceLock<HashMap<usize, String>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let mut sites: Vec<_> =
            Callsite::all().filter(|site| site.policy.name().is_empty()).collect();
        sites.sort_by_key(|site| {
            let place = &site.declaration;
            (place.file, place.line, place.column, address(site))
        });
        let paths = sites.iter().map(|site| (site.path(), site.declaration.module));
        let names = unique(&paths.collect::<Vec<_>>());
        sites.iter().map(|site| address(site)).zip(names).collect()
    });
    match names.get(&address(site)) {
        Some(name) => name,
        // A library that is loaded later is not in the list, nor is a copy of a function.
        None => match site.path() {
            Cow::Borrowed(name) => name,
            Cow::Owned(name) => name.leak(),
        },
    }
}

fn address(site: &Callsite) -> usize {
    ptr::from_ref(site).addr()
}

/// Returns the names for functions of these paths and modules, in source order.
///
/// A type that a macro generated around a function is left out, unless two functions would then
/// have one name. Functions of one path, as in two blocks of one function, are numbered.
fn unique(functions: &[(Cow<'_, str>, &str)]) -> Vec<String> {
    let short = functions.iter().map(|(path, module)| wrapper(path, module).unwrap_or(path));
    let mut times = HashMap::new();
    for name in short.clone() {
        *times.entry(name).or_insert(0) += 1;
    }
    let mut numbers = HashMap::new();
    let names = functions.iter().zip(short).map(|((path, _), short)| {
        let name = if times[short] > 1 { &**path } else { short };
        let number = numbers.entry(name).or_insert(0);
        *number += 1;
        if *number == 1 { name.to_owned() } else { format!("{name}#{number}") }
    });
    names.collect()
}

/// Returns the path of the function whose body declares the item at `inner`. The closure that is
/// the body of an `async fn` is left out.
pub(super) fn enclosing_function(inner: &'static str) -> Cow<'static, str> {
    const BODY: &str = "::{{closure}}";
    let function = inner.rsplit_once("::").map_or(inner, |(function, _)| function);
    if function.contains(BODY) { function.replace(BODY, "").into() } else { function.into() }
}

/// Returns the path of the type that a macro generated for a function, if both have one name. The
/// function is declared in one of the type's methods (`<app::greet as Route>::register::greet`), or
/// is one (`app::greet::greet`).
fn wrapper<'a>(path: &'a str, module: &str) -> Option<&'a str> {
    let (around, function) = path.rsplit_once("::")?;
    let wrapper = match around.strip_prefix('<') {
        // The trait is a part of the path of its own method.
        Some(_) if around.ends_with('>') => return None,
        Some(implementation) => implementation.split_once(" as ")?.0,
        None if around.strip_prefix(module)?.strip_prefix("::")? == function => around,
        None => return None,
    };
    (wrapper.rsplit("::").next() == Some(function)).then_some(wrapper)
}

/// Returns a path without the generic arguments of its segments.
pub(super) fn without_arguments(path: &str) -> String {
    let (mut bare, mut depth) = (String::new(), 0_u32);
    for letter in path.chars() {
        let is_after_name = bare.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        match letter {
            '<' if depth > 0 || is_after_name => depth += 1,
            '>' if depth > 0 => depth -= 1,
            _ if depth == 0 => bare.push(letter),
            _ => {}
        }
    }
    bare
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_is_found_around_the_item_in_its_body() {
        for (inner, function) in [
            ("app::say_hi::{{closure}}::here", "app::say_hi"),
            ("app::say_hi::here", "app::say_hi"),
            ("app::outer::{{closure}}::say_hi::{{closure}}::here", "app::outer::say_hi"),
            ("app::outer::{{closure}}::{{closure}}::say_hi::here", "app::outer::say_hi"),
        ] {
            assert_eq!(enclosing_function(inner), function);
        }
    }

    #[test]
    fn a_type_that_a_macro_wraps_a_function_in_is_no_part_of_its_name() {
        for (path, module, name) in [
            (
                "<app::todo::list as actix_web::Factory>::register::list",
                "app::todo",
                "app::todo::list",
            ),
            ("<app::hello as poem::Endpoint>::call::hello", "app", "app::hello"),
            ("app::hello::hello", "app", "app::hello"),
        ] {
            assert_eq!(wrapper(path, module), Some(name));
        }
        // A module, a method, functions in other functions, a module in a function.
        for (path, module) in [
            ("app::hello::hello", "app::hello"),
            ("<app::send as app::Send>::send", "app"),
            ("<app::Mail as app::Send>::send::log", "app"),
            ("app::outer::inner", "app"),
            ("app::Mail::send", "app"),
            ("app::outer::inner::f", "app::inner"),
            ("hello", "app"),
        ] {
            assert_eq!(wrapper(path, module), None, "{path}");
        }
    }

    #[test]
    fn no_two_functions_have_one_name() {
        let app = |paths: &[&'static str]| {
            let functions: Vec<_> =
                paths.iter().map(|path| (Cow::Borrowed(*path), "app")).collect();
            unique(&functions)
        };
        assert_eq!(
            app(&["app::f", "app::g::f", "app::g::f"]),
            ["app::f", "app::g::f", "app::g::f#2"]
        );
        assert_eq!(app(&["app::f", "app::f::f"]), ["app::f", "app::f::f"]);
        let wrapped = ["<app::f as A>::a::f", "<app::f as B>::b::f"];
        assert_eq!(app(&wrapped), wrapped);
    }
}
