//! Editors complete inside arguments, also half-typed ones. rust-analyzer inserts an identifier at the
//! cursor, and finds the types before it at the same place of the expansion without that identifier.

use proc_macro2::TokenStream;

use crate::{
    expand,
    same_rules::{item, messages},
};

const INSERTED: &str = "raCompletionMarker";

/// Returns the expansions of what is typed, `^` being the cursor, and of the same with an identifier there.
fn expansions(typed: &str) -> [TokenStream; 2] {
    ["", INSERTED].map(|inserted| {
        let arguments = typed.replace('^', inserted).parse().expect("tokens");
        expand::rate_limit(arguments, &item())
    })
}

#[test]
fn a_value_at_the_cursor_has_the_same_place_in_both_expansions() {
    for typed in [
        "key = user.id^",
        "key = user.^",
        "key = us^er",
        "key = ^",
        "key = user.^, threshold = 3",
        "key = user.^, threshold = 0",
        "colour = 1, key = user.i^d",
        "key = (user.tenant, user.^)",
        "key = user., skip = user.^",
        "key = user.^, skip = user.",
        "tier(period = 1, threshold = plan.^)",
        "policy = LIM^",
        "period = plan.per^iod, threshold = plan.threshold",
        "cost = job.^, key = 1",
        "otherwise = cached(user.^)",
        "settle = |out| out.^",
        "otherwise = |error| error.^",
    ] {
        let [without, with] = expansions(typed).map(|it| it.to_string());
        let (before, _) = with.split_once(INSERTED).unwrap_or_else(|| panic!("{typed}: {with}"));
        let before = before.trim_end();
        assert!(without.starts_with(before), "{typed}:\n{without}\n{with}");
        assert_eq!(with.matches(INSERTED).count(), 1, "{typed}: {with}");
    }
}

#[test]
fn values_stay_in_the_output_of_an_attribute_with_an_error() {
    let arguments = "key = user., threshold = 0, algorithm = sliding, on_store_error = alow,
        decision = 1, otherwise = |error| error., settle = |out| out., tier(period = p.)";
    let expansion = expand::rate_limit(arguments.parse().unwrap(), &item());
    let text = expansion.to_string();
    let (_, values) = text.split_once("half_typed ! {").expect("the values");
    let (values, _) = values.split_once('}').expect("their end");
    let expected = "let _ = user . ; let _ = 0 ; \
        let _ : fn (:: ratelimit_runtime :: RateLimitError) -> _ = | error | error . ; \
        let _ : fn (& Result < () , E >) -> _ = | out | out . ; let _ = p . ;";
    let without_spaces = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(without_spaces(values), without_spaces(expected));
    assert!(
        messages(expansion)
            .contains(&"`threshold` goes into a `tier(..)` when there are any".to_owned())
    );
}

#[test]
fn an_attribute_without_an_error_has_its_values_once() {
    let expansion = expand::rate_limit("key = user.id, threshold = 3".parse().unwrap(), &item());
    let text = expansion.to_string();
    assert!(!text.contains("half_typed"), "{text}");
    // As code; the text of the key is in the declaration.
    assert_eq!(text.matches("user . id").count(), 2, "{text}");
}
