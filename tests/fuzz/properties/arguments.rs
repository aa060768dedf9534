//! Any arguments on any item cause no panic, the item stays, and the runtime accepts all that the compiler
//! accepts.

use std::time::Duration;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    Attribute, Signature, Visibility,
    parse::{ParseStream, Parser},
};

use crate::{args::Args, errors::Errors, expand, limit::LimitSpec, value::Value};

/// The arguments, and after a line of `---` the item.
pub(crate) fn holds(text: &str) {
    let (arguments, item) = text.split_once("\n---\n").unwrap_or((text, "async fn f() -> R {}"));
    let (Ok(arguments), Ok(item)) = (arguments.parse::<TokenStream>(), item.parse()) else {
        return;
    };
    let expansion = expand::rate_limit(arguments.clone(), &item);
    assert_item_stays(&expansion, &item);

    let mut errors = Errors::default();
    let args = Args::parse(arguments, &mut errors);
    let policy = LimitSpec::validate(args, Span::call_site(), &mut errors);
    if errors.into_tokens().is_none() && policy.is_literal() {
        assert_eq!(validate(&policy), Ok(()));
    }
}

fn validate(policy: &LimitSpec) -> Result<(), ratelimit_runtime::InvalidPolicy> {
    use ratelimit_runtime::Policy as Late;

    let units = |value: &Value| u32::try_from(value.number.expect("known")).expect("validated");
    let time = |value: &Value| Duration::from_micros(value.number.expect("known"));
    let new = match policy.algorithm.as_str() {
        "sliding_window" => Late::sliding_window,
        "sliding_counter" => Late::sliding_counter,
        "fixed_window" => Late::fixed_window,
        _ => Late::token_bucket,
    };
    let calls = policy.concurrency.as_ref().map(units);
    let mut late = match policy.tiers.split_first() {
        Some((first, others)) => {
            let first = new("p", time(&first.period), units(&first.threshold));
            others
                .iter()
                .fold(first, |late, tier| late.tier(time(&tier.period), units(&tier.threshold)))
        }
        None => Late::concurrency_limit("p", calls.expect("calls in flight without a window")),
    };
    if let Some(calls) = calls {
        late = late.concurrency(calls);
    }
    if let Some(timeout) = &policy.concurrency_timeout {
        late = late.concurrency_timeout(time(timeout));
    }
    if let Some(burst) = &policy.burst {
        late = late.burst(units(burst));
    }
    if policy.count_rejected.is_some() {
        late = late.count_rejected();
    }
    if let Some(lease) = &policy.lease {
        late = late.lease(time(lease));
    }
    late.validate()
}

/// Asserts that the expansion has every token of the item in order, with any tokens in between. Of a statement it has an
/// error alone.
fn assert_item_stays(expansion: &TokenStream, item: &TokenStream) {
    let (mut emitted, mut written) = (Vec::new(), Vec::new());
    flatten(expansion.clone(), &mut emitted);
    match function.parse2(item.clone()) {
        Ok((signature, body)) => {
            flatten(signature.to_token_stream(), &mut written);
            // `syn` writes lifetimes before the types that they follow, where no compiler accepts them.
            let (mut as_written, behind) = (Vec::new(), written.len());
            flatten(item.clone(), &mut as_written);
            flatten(body.clone(), &mut written);
            if !as_written.ends_with(&written) {
                return;
            }
            written.truncate(behind);
            // A body that another attribute has boxed is taken apart, and attributes in a body are
            // set before the function.
            let starts_with_attribute =
                |body: &[String]| body.starts_with(&["{", "#", "!"].map(str::to_owned));
            let (at, is_async) = (written.len(), signature.asyncness.is_some());
            flatten(body, &mut written);
            if !is_async || starts_with_attribute(&written[at..]) {
                written.truncate(at);
            }
        }
        Err(_) => flatten(item.clone(), &mut written),
    }
    // A `fn` inside of a group is none of the item.
    let mut outer = item.clone().into_iter().map(|token| token.to_string());
    let is_statement =
        !outer.any(|token| token == "fn") && syn::parse2::<syn::Item>(item.clone()).is_err();
    if is_statement {
        return;
    }
    let mut emitted = emitted.iter();
    for token in &written {
        assert!(emitted.any(|other| other == token), "`{token}` is lost:\n{item}\n{expansion}");
    }
}

/// The signature, which `syn` writes anew, and the body as it was written.
fn function(input: ParseStream<'_>) -> syn::Result<(Signature, TokenStream)> {
    input.call(Attribute::parse_outer)?;
    input.parse::<Visibility>()?;
    Ok((input.parse()?, input.parse()?))
}

fn flatten(tokens: TokenStream, flat: &mut Vec<String>) {
    for token in tokens {
        let TokenTree::Group(group) = token else {
            flat.push(token.to_string());
            continue;
        };
        let (open, close) = match group.delimiter() {
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::Brace => ("{", "}"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::None => ("", ""),
        };
        flat.push(open.to_owned());
        flatten(group.stream(), flat);
        flat.push(close.to_owned());
    }
}
