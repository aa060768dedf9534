//! The check of one limit: its callsite, and the start of its call.
//!
//! Floor 7.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use ratelimit_core::{Algorithm, CalendarUnit, period};
use syn::spanned::Spanned;

use crate::{
    completion,
    function::Function,
    limit::LimitSpec,
    shared::SharedPolicy,
    store_error::StoreErrorAnswer,
    tiers::TierSpec,
    tokens::spanned,
    value::{self, Kind, Value},
};

/// One limit of a function. All bindings of its code share the name `it`, which is first declared
/// as a function: see [`stacked::callsite`](crate::stacked::callsite).
#[derive(Clone, Copy)]
pub(crate) struct Check<'a> {
    pub(crate) spec: &'a LimitSpec,
    pub(crate) function: &'a Function,
    pub(crate) it: &'a Ident,
}

impl Check<'_> {
    /// Returns the variable that is kept until the end of the body: the decision that the body
    /// sees, or one that it does not see and that holds the permit or is settled.
    pub(crate) fn kept(self) -> Option<Ident> {
        let held = || Ident::new(&format!("{}held", self.it), Span::mixed_site());
        let is_kept = self.spec.holds_permit() || self.spec.settle.is_some();
        self.spec.answer.decision.clone().or_else(|| is_kept.then(held))
    }

    /// Returns the path of the items that only generated code names.
    pub(crate) fn private(self) -> TokenStream {
        let krate = &self.spec.krate;
        quote!(#krate::__private)
    }

    /// Returns the item that declares the callsite.
    pub(crate) fn callsite(self) -> TokenStream {
        let (it, private) = (self.it, self.private());
        let shared = self.spec.policy.as_ref();
        let new = shared.map_or_else(|| format_ident!("new"), SharedPolicy::constructor);
        let checks = shared.map(|policy| policy.checks(&private));
        let literal = match shared {
            Some(policy) => policy.tokens(&private),
            None => policy_tokens(self.spec, |value| value.literal(&private)),
        };
        let declaration = declaration(self.spec, &private);
        quote! {
            fn #it() -> &'static #private::Callsite {
                #checks
                static CALLSITE: #private::Callsite = #private::Callsite::#new(#it, #literal, #declaration);
                #private::submit!(&CALLSITE);
                &CALLSITE
            }
        }
    }

    /// Returns the condition of the check, if it may be skipped.
    pub(crate) fn condition(self) -> Option<TokenStream> {
        self.spec.skip.as_ref().map(|expr| {
            let skip = self.function.localize(expr);
            // With the span of the expression, at which the compiler then reports a wrong type.
            let private = spanned(&self.private(), expr.span());
            let runs_check = quote_spanned!(expr.span()=> #private::runs_check(#skip));
            quote!(if #runs_check)
        })
    }

    /// Returns the block that builds the call and starts it by the builder's method `start`, or by
    /// `{start}_under` with a dynamic policy. The builder is dropped before anything is awaited.
    pub(crate) fn start(self, start: &str) -> TokenStream {
        let Self { spec, function, it } = self;
        let LimitSpec { cost, max_wait, on_store_error, key, limiter, krate, .. } = spec;
        let private = self.private();
        let emit = |value: &Value| match (value.number, value.kind) {
            (Some(_), _) => value.literal(&private),
            (None, Kind::Time) => function.localize(value),
            (None, Kind::Units) => units(&private, value.span(), &function.localize(value)),
        };
        let dynamic = match &spec.plan {
            Some(expr) => {
                let (plan, private) = (function.localize(expr), spanned(&private, expr.span()));
                Some(quote_spanned!(expr.span()=> #private::plan_of(#it(), &(#plan))))
            }
            None => (!spec.is_literal()).then(|| policy_tokens(spec, emit)),
        };
        let builder = quote!(#private::CallBuilder::new(#it()));
        let (at, limiter) = match limiter {
            Some(expr) => {
                let limiter = function.localize(expr);
                // The parameter's type would otherwise be expected of each branch of an `if` or
                // `match`.
                (expr.span(), quote!(&*&(#limiter)))
            }
            None => (Span::call_site(), quote!(#private::limiter())),
        };
        // A dynamic policy is passed with the call.
        let (call, start) = if dynamic.is_some() {
            let start = format_ident!("{start}_under", span = at);
            (quote!(#it.0), quote_spanned!(at=> #start(#limiter, &#it.1)))
        } else {
            let start = Ident::new(start, at);
            (quote!(#it), quote_spanned!(at=> #start(#limiter)))
        };
        let new = match dynamic {
            Some(dynamic) => quote!((#builder, #dynamic)),
            None => builder,
        };
        let self_type = self.self_type(&call);
        let option = |name: &str, value: &Option<Value>| {
            let value = value.as_ref()?;
            let (name, number) = (Ident::new(name, value.span()), emit(value));
            Some(quote_spanned!(value.span()=> #call.options.#name(#number);))
        };
        let (cost, max_wait) = (option("cost", cost), option("max_wait", max_wait));
        let (leave, warn_at) = (option("leave", &spec.leave), option("warn_at", &spec.warn_at));
        // No compiler knows the numbers.
        let is_elsewhere = spec.policy.is_some() || !spec.is_literal();
        let unvalidated = is_elsewhere.then(|| quote!(#call.options.unvalidated();));
        let request_id = spec.request_id.as_ref().map(|expr| {
            let id = function.localize(expr);
            let private = spanned(&private, expr.span());
            quote_spanned! {expr.span()=>
                #call.options.request_id(#private::RequestId::hash(#private::part(&(#id)).id()));
            }
        });
        let answer = on_store_error.as_ref().map(|StoreErrorAnswer { tokens, .. }| {
            quote!(#call.options.on_store_error(#krate::OnStoreError::#tokens);)
        });
        // A key of literals is the same for all clients. Without a key it is the ambient caller.
        let is_shared = !key.is_empty() && key.iter().all(value::is_literal);
        let shared = is_shared.then(|| quote!(#call.options.shared();));
        // One statement a part: its borrows end before anything is awaited.
        let parts = key.iter().map(|expr| {
            let part = function.localize(expr);
            let private = spanned(&private, expr.span());
            quote_spanned! {expr.span()=>
                #private::KeyPart::push_to(#private::part(&(#part)).pick(), &mut #call.caller);
            }
        });
        let settings: TokenStream =
            [self_type, unvalidated, cost, leave, warn_at, request_id, max_wait, answer, shared]
                .into_iter()
                .flatten()
                .chain(parts)
                .collect();
        quote! {{
            let mut #it = #new;
            #settings
            #call.#start
        }}
    }

    /// Returns the block with the decision of a call that is not checked.
    pub(crate) fn skipped(self) -> TokenStream {
        let (it, private) = (self.it, self.private());
        let self_type = self.self_type(it);
        quote! {{
            let mut #it = #private::CallBuilder::new(#it());
            #self_type
            #it.skipped()
        }}
    }

    /// Returns the arm that ends a refused call. `pattern` makes its pattern of that of the error.
    pub(crate) fn refusal(self, pattern: impl FnOnce(TokenStream) -> TokenStream) -> TokenStream {
        let Self { spec, function, it } = self;
        let private = self.private();
        if let Some(otherwise) = &spec.answer.otherwise {
            let pattern = pattern(otherwise.pattern(it));
            let value = otherwise.tokens(function, it, &private);
            return quote!(#private::Err(#pattern) => { #value; });
        }
        let (pattern, refused) = (pattern(it.to_token_stream()), function.refused(&spec.krate, it));
        quote!(#private::Err(#pattern) => return #refused,)
    }

    fn self_type(self, call: &impl ToTokens) -> Option<TokenStream> {
        self.function.has_receiver().then(|| quote!(#call.self_type::<Self>();))
    }
}

/// Returns the conversion of a number of any unsigned type into units.
fn units(private: &TokenStream, span: Span, number: &TokenStream) -> TokenStream {
    let private = spanned(private, span);
    quote_spanned!(span=> #private::Units::units(#private::number(#number).pick()))
}

/// Returns the declaration of the callsite, for the list of all limits.
fn declaration(spec: &LimitSpec, private: &TokenStream) -> TokenStream {
    let LimitSpec { cost, key, dry_run, at, .. } = spec;
    let here = spanned(private, *at);
    let dynamic: Vec<_> = spec.numbers().filter(|value| value.number.is_none()).map(text).collect();
    let cost = cost.as_ref().map_or_else(|| "1".to_owned(), text);
    let key: Vec<_> = key.iter().map(text).collect();
    let (names, values): (Vec<_>, Vec<_>) = others(spec).into_iter().unzip();
    // `line!` and the others return the place of their span: that of the attribute.
    let [file, line, column] = ["file", "line", "column"].map(|name| {
        let name = Ident::new(name, *at);
        quote_spanned!(*at=> #here::#name!())
    });
    quote! {
        #private::Declaration {
            file: #file,
            line: #line,
            column: #column,
            module: #private::module_path!(),
            dynamic: &[#(#dynamic),*],
            cost: #cost,
            key: &[#(#key),*],
            dry_run: #dry_run,
            others: &[#((#names, #values)),*],
        }
    }
}

/// Returns the arguments that change who is admitted and are not in the policy, with their values
/// as text.
fn others(spec: &LimitSpec) -> Vec<(&'static str, String)> {
    let LimitSpec { leave, warn_at, max_wait, skip, on_store_error, request_id, .. } = spec;
    let of = |value: &Option<Value>, unit: fn(u64) -> String| {
        value.as_ref().map(|it| it.number.map_or_else(|| text(it), unit))
    };
    let others = [
        ("leave", of(leave, |percent| format!("{percent}%"))),
        ("warn_at", of(warn_at, |percent| format!("{percent}%"))),
        ("max_wait", of(max_wait, period::text)),
        ("skip", skip.as_ref().map(text)),
        ("on_store_error", on_store_error.as_ref().map(|answer| answer.text.clone())),
        ("request_id", request_id.as_ref().map(text)),
    ];
    others.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Returns the source of an expression on one line, as it is typed.
fn text(expr: &impl ToTokens) -> String {
    completion::as_typed(expr.to_token_stream())
        .to_string()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the policy's constructor call, with each value as `emit` writes it.
fn policy_tokens(spec: &LimitSpec, emit: impl Fn(&Value) -> TokenStream) -> TokenStream {
    let LimitSpec { algorithm, tiers, burst, count_rejected, name, krate, .. } = spec;
    let LimitSpec { concurrency, concurrency_timeout, .. } = spec;
    let name = name.as_ref().map_or_else(|| quote!(""), ToTokens::to_token_stream);
    let unit_of = |period: &Value| {
        let unit = CalendarUnit::of_nominal(period.number?)?;
        let variant = format_ident!("{unit:?}");
        Some(quote!(#krate::CalendarUnit::#variant))
    };
    let is_calendar = *algorithm == Algorithm::CalendarWindow;
    let mut tiers = tiers.iter().map(|TierSpec { period, threshold, .. }| {
        let unit = is_calendar.then(|| unit_of(period)).flatten();
        let (period, threshold) = (unit.unwrap_or_else(|| emit(period)), emit(threshold));
        quote!(#period, #threshold)
    });
    let setter = |name: &str, value: &Option<Value>| {
        let (name, value) = (format_ident!("{name}"), value.as_ref().map(&emit));
        value.map(|value| quote!(.#name(#value)))
    };
    let timeout = setter("concurrency_timeout", concurrency_timeout);
    let first = match (tiers.next(), concurrency) {
        (None, Some(calls)) => {
            let calls = emit(calls);
            // All other setters need a window.
            return quote!(#krate::Policy::concurrency_limit(#name, #calls) #timeout);
        }
        (first, _) => first,
    };
    let constructor = format_ident!("{}", algorithm.as_str());
    let (burst, concurrency) = (setter("burst", burst), setter("concurrency", concurrency));
    let count_rejected = count_rejected.as_ref().map(|_| quote!(.count_rejected()));
    let lease = setter("lease", &spec.lease);
    let unit = spec.quota_unit.map(|variant| {
        let variant = format_ident!("{variant}");
        quote!(.quota_unit(#krate::QuotaUnit::#variant))
    });
    let zone = spec.zone.as_ref().map(|zone| quote!(.zone(#zone)));
    let lengths: Vec<_> = spec.block.iter().map(&emit).collect();
    let block = (!lengths.is_empty()).then(|| quote!(.block(&[#(#lengths),*])));
    quote! {
        #krate::Policy::#constructor(#name, #first)
            #(.tier(#tiers))* #burst #count_rejected #concurrency #timeout #lease #unit #zone #block
    }
}
