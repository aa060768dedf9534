//! The attribute and the runtime validate by the same rules: for any numbers the compiler reports the
//! violations that the runtime reports.

use std::{fs, path::PathBuf, time::Duration};

use harness::schedule::operations;
use proc_macro2::{TokenStream, TokenTree};
use proptest::{prelude::*, test_runner::FileFailurePersistence};
use quote::quote;
use ratelimit_runtime::{Limiter, Policy, RateLimitError};

use crate::expand;

/// The messages of the compile errors that an expansion holds.
pub(crate) fn messages(expansion: TokenStream) -> Vec<String> {
    let mut messages = Vec::new();
    let mut in_error = false;
    for token in expansion {
        match token {
            TokenTree::Ident(ident) => in_error = ident == "compile_error",
            TokenTree::Group(group) if in_error => {
                let message = syn::parse2::<syn::LitStr>(group.stream()).expect("a message");
                messages.push(message.value());
                in_error = false;
            }
            _ => {}
        }
    }
    messages
}

pub(crate) fn item() -> TokenStream {
    quote!(
        async fn limited() -> Result<(), E> {
            Ok(())
        }
    )
}

/// Numbers, with those near a bound more often than by chance.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..10_u64,
        99_998..100_003_u64,
        31_622_398..31_622_403_u64,
        u64::from(u32::MAX) - 2..u64::from(u32::MAX) + 2,
        (0..64_u32).prop_map(|bits| 1 << bits),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: u32::try_from(operations() / 4).expect("some thousands"),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn compiler_and_runtime_report_the_same(period in number(), threshold in number()) {
        let period_literal = proc_macro2::Literal::u64_unsuffixed(period);
        let threshold_literal = proc_macro2::Literal::u64_unsuffixed(threshold);
        let arguments = quote!(period = #period_literal, threshold = #threshold_literal);
        let compiler = messages(expand::rate_limit(arguments, &item()));

        // The runtime's threshold is a `u32`: a larger one cannot come up there.
        let Ok(threshold) = u32::try_from(threshold) else {
            prop_assert!(!compiler.is_empty());
            return Ok(());
        };
        let period = Duration::from_secs(period);
        let policy = Policy::sliding_window("p", period, threshold);
        let runtime = policy.validate().err().map(|error| error.fault().to_string());
        prop_assert_eq!(compiler.first().cloned(), runtime, "{:?}", compiler);
    }

    #[test]
    fn compiler_and_runtime_report_the_same_for_all_algorithms(
        algorithm in 0..4_usize,
        tiers in prop::collection::vec((1..200_u64, 1..50_u32), 1..11),
        burst in prop::option::of(0..50_u32),
        count_rejected: bool,
        cost in 0..60_u32,
        lease in prop::option::of(0..3_000_u64),
    ) {
        type New = fn(&'static str, Duration, u32) -> Policy;
        let (name, new): (_, New) = [
            ("sliding_window", Policy::sliding_window as New),
            ("sliding_counter", Policy::sliding_counter),
            ("fixed_window", Policy::fixed_window),
            ("token_bucket", Policy::token_bucket),
        ][algorithm];
        let name = quote::format_ident!("{}", name);
        let mut arguments = quote!(algorithm = #name, cost = #cost,);
        let mut policy: Option<Policy> = None;
        for (period, threshold) in tiers {
            arguments.extend(quote!(tier(period = #period, threshold = #threshold),));
            let period = Duration::from_secs(period);
            policy = Some(match policy {
                None => new("p", period, threshold),
                Some(policy) => policy.tier(period, threshold),
            });
        }
        let mut policy = policy.expect("at least one tier");
        if let Some(burst) = burst {
            arguments.extend(quote!(burst = #burst,));
            policy = policy.burst(burst);
        }
        if count_rejected {
            arguments.extend(quote!(count_rejected,));
            policy = policy.count_rejected();
        }
        if let Some(millis) = lease {
            let written = format!("{millis}ms");
            arguments.extend(quote!(lease = #written,));
            policy = policy.lease(Duration::from_millis(millis));
        }
        let compiler = messages(expand::rate_limit(arguments, &item()));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime")
            .block_on(Limiter::in_memory().check(&policy, "alice").cost(cost).into_future());
        match runtime {
            Err(RateLimitError::InvalidPolicy(error)) => {
                let validated = policy.validate().expect_err("the same rule");
                prop_assert_eq!(compiler.first().cloned(), Some(validated.fault().to_string()));
                prop_assert!(compiler.contains(&error.fault().to_string()), "{:?}", compiler);
            }
            // Only a call commits this violation.
            Err(RateLimitError::TooLarge(error)) => {
                prop_assert_eq!(compiler.first().cloned(), Some(error.fault().to_string()));
            }
            // A call of nothing passes where the compiler advises `skip`.
            _ if cost == 0 => prop_assert!(!compiler.is_empty()),
            _ => prop_assert_eq!(compiler.len(), 0, "{:?}", compiler),
        }
    }

    #[test]
    fn any_tokens_are_taken_without_a_panic_and_the_item_stays(text in "[a-z_]{0,9}( ?[=,()\"'0-9a-z._&!:-]{1,5} ?){0,12}") {
        if let Ok(arguments) = text.parse::<TokenStream>() {
            let expansion = expand::rate_limit(arguments, &item()).to_string();
            prop_assert!(expansion.contains("async fn limited"), "{}", expansion);
        }
    }
}

/// `rustc` would cut such literals off without a word, as the attribute writes them.
#[test]
fn a_number_above_those_of_the_runtime_is_an_error_in_each_argument() {
    for (arguments, name) in [
        (quote!(concurrency = 4294967297), "concurrency"),
        (quote!(policy = P, cost = 4294967296), "cost"),
        (quote!(threshold = t, cost = 4294967296), "cost"),
        (quote!(algorithm = token_bucket, threshold = t, burst = 4294967296), "burst"),
    ] {
        let messages = messages(expand::rate_limit(arguments, &item()));
        let expected = format!("`{name}` must be at most 4294967295, but is 42949672");
        assert!(messages.iter().any(|it| it.starts_with(&expected)), "{name}: {messages:?}");
    }
}

#[test]
fn a_cost_may_be_as_large_as_the_threshold() {
    let faults = |algorithm: &str, threshold: u64, cost: u64| {
        let algorithm = quote::format_ident!("{}", algorithm);
        let arguments = quote!(algorithm = #algorithm, threshold = #threshold, cost = #cost);
        messages(expand::rate_limit(arguments, &item()))
    };
    for algorithm in ["sliding_window", "token_bucket", "sliding_counter", "fixed_window"] {
        for cost in [1, 1_000_000_000] {
            assert_eq!(faults(algorithm, 1_000_000_000, cost), [""; 0], "{algorithm}");
        }
    }
    let [fault] = &faults("sliding_window", 1_000_000_001, 2)[..] else { panic!("one fault") };
    assert!(fault.starts_with("`threshold` must be at most 1000000000"), "{fault}");
}

/// The expansions of a few shapes; `UPDATE_EXPANSIONS=1` writes the files.
#[test]
fn expansions_are_as_reviewed() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("compile/expand");
    let mut shapes = 0;
    for entry in fs::read_dir(&directory).expect("the shapes") {
        let path = entry.expect("a shape").path();
        if path.to_string_lossy().ends_with(".expanded.rs") {
            continue;
        }
        shapes += 1;
        let written = fs::read_to_string(&path).expect("the shape");
        let mut file = syn::parse_file(&written).expect("a Rust file");
        let items = file.items.into_iter().map(expand_item).collect();
        file.items = items;
        let expanded = prettyplease::unparse(&file);
        let reviewed = path.with_extension("expanded.rs");
        if std::env::var_os("UPDATE_EXPANSIONS").is_some() {
            fs::write(&reviewed, &expanded).expect("the expansion is written");
        }
        let reviewed = fs::read_to_string(&reviewed).expect("the reviewed expansion");
        assert_eq!(expanded, reviewed, "{}", path.display());
    }
    assert!(shapes > 0);
}

/// Expands the attribute of a function, or of the methods of an impl.
fn expand_item(item: syn::Item) -> syn::Item {
    match item {
        syn::Item::Fn(mut function) => {
            let found = take_attribute(&mut function.attrs);
            let arguments = found.expect("an annotated function");
            syn::parse2(expand::rate_limit(arguments, &quote!(#function))).expect("a function")
        }
        syn::Item::Impl(mut block) => {
            for item in &mut block.items {
                let syn::ImplItem::Fn(method) = item else { continue };
                if let Some(arguments) = take_attribute(&mut method.attrs) {
                    let expanded = expand::rate_limit(arguments, &quote!(#method));
                    *item = syn::parse2(expanded).expect("a method");
                }
            }
            syn::Item::Impl(block)
        }
        other => other,
    }
}

fn take_attribute(attributes: &mut Vec<syn::Attribute>) -> Option<TokenStream> {
    let found = attributes.iter().position(|it| it.path().is_ident("rate_limit"))?;
    Some(match attributes.remove(found).meta {
        syn::Meta::List(list) => list.tokens,
        _ => TokenStream::new(),
    })
}
