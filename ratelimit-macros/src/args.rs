//! The table of arguments: their names and forms, and how they stand to one another. Parsing,
//! suggestions and combinations follow it; a test compares the list of the manual with it.
//!
//! Floor 3.

use proc_macro2::{Ident, Span, TokenStream};
use ratelimit_core::PolicyFault;
use syn::{
    Expr, Path, parenthesized,
    parse::{ParseStream, Parser},
};

use crate::{
    errors::Errors,
    grammar::{Arg, Slot, each_argument},
    names::{instead, list, nearest},
};

/// A row of the table.
#[expect(clippy::struct_excessive_bools, reason = "the columns are independent")]
pub(crate) struct Argument {
    pub(crate) name: &'static str,
    /// The names that other rate limiters have for it.
    synonyms: &'static [&'static str],
    /// `true` if its value is a word or a new name, and no expression.
    pub(crate) is_word: bool,
    /// `true` for a part of a policy, which one that is named by its path has already.
    pub(crate) of_policy: bool,
    /// `true` if it counts something, and so needs a window.
    pub(crate) of_window: bool,
    /// `true` if it needs the store at each call, and so excludes `lease`.
    pub(crate) of_store: bool,
    /// The arguments that it excludes, with the reasons.
    pub(crate) excludes: &'static [(&'static str, &'static str)],
    /// The arguments that it excludes by a rule that policies made at run time have too, with its
    /// error.
    pub(crate) faults: Option<(&'static [&'static str], FaultWith)>,
    /// The argument that it needs, with the reason.
    pub(crate) needs: Option<(&'static str, &'static str)>,
}

/// The error of a rule that another argument breaks.
type FaultWith = fn(&'static str) -> PolicyFault;

impl Argument {
    const fn named(name: &'static str) -> Self {
        Self {
            name,
            synonyms: &[],
            is_word: false,
            of_policy: false,
            of_window: false,
            of_store: false,
            excludes: &[],
            faults: None,
            needs: None,
        }
    }
}

/// `name = value`.
type Assigned = Option<Arg<Expr>>;
/// `name`.
type Flag = Option<Ident>;
/// `name(..)`, any number of times.
type Tiers = Vec<Arg<TierArgs>>;

/// Declares a table, and the arguments as written: one field for each row.
macro_rules! arguments {
    (
        $(#[$docs:meta])*
        $args:ident { $($other:ident: $type:ty)? }, $table:ident:
        $($name:literal $field:ident: $slot:ty { $($column:ident: $cell:expr),* $(,)? })*
    ) => {
        $(#[$docs])*
        #[derive(Default)]
        pub(crate) struct $args {
            $(pub(crate) $other: $type,)?
            $(pub(crate) $field: $slot,)*
        }

        /// The rows, in the order of the manual.
        pub(crate) const $table: &[Argument] = &[
            $(Argument { $($column: $cell,)* ..Argument::named($name) },)*
        ];

        impl $args {
            /// Parses one argument after its name.
            fn take(
                &mut self,
                name: Ident,
                input: ParseStream<'_>,
                errors: &mut Errors,
            ) -> syn::Result<()> {
                match name.to_string().as_str() {
                    $($name => self.$field.parse(name, input, errors),)*
                    unknown => Err(unknown_name(unknown, name.span(), $table)),
                }
            }
        }
    };
}

arguments! {
    /// The arguments as written, with their spans; nothing for each that is absent.
    Args { written: Vec<Ident> }, ARGUMENTS:

    "period" period: Assigned {
        synonyms: &["window", "per", "interval", "duration", "ttl", "seconds"],
        of_policy: true,
    }
    "threshold" threshold: Assigned {
        synonyms: &[
            "limit", "rate", "max", "max_requests", "requests", "count", "quota", "permits", "rps",
            "calls",
        ],
        of_policy: true,
    }
    "tier" tiers: Tiers { synonyms: &["tiers", "windows", "limits"], of_policy: true }
    "key" key: Assigned {
        synonyms: &["by", "user", "caller", "identity", "identifier", "key_func"],
    }
    "name" name: Assigned { of_policy: true }
    "algorithm" algorithm: Assigned { is_word: true, of_policy: true, of_window: true }
    "burst" burst: Assigned {
        synonyms: &["capacity", "burst_size", "bucket_size"],
        of_policy: true,
        of_window: true,
    }
    "cost" cost: Assigned { synonyms: &["weight", "tokens", "units", "amount"], of_window: true }
    "skip" skip: Assigned { synonyms: &["unless", "exempt", "exempt_when", "skip_if"] }
    "limiter" limiter: Assigned { synonyms: &["store", "backend"] }
    "on_store_error" on_store_error: Assigned { is_word: true }
    "max_wait" max_wait: Assigned {
        synonyms: &["timeout", "max_wait_ms", "wait"],
        of_store: true,
    }
    "count_rejected" count_rejected: Flag {
        of_policy: true,
        of_window: true,
        of_store: true,
        excludes: &[(
            "settle",
            "under `count_rejected` calls are recorded that have no output to settle by",
        )],
    }
    "dry_run" dry_run: Flag {}
    "fallible" fallible: Flag {
        excludes: &[
            (
                "otherwise",
                "`otherwise` returns a value of the written type, which needs no `fallible`",
            ),
            ("soft", "with `soft` no call is refused, which needs no `fallible`"),
        ],
    }
    "otherwise" otherwise: Assigned {
        synonyms: &["or_else", "fallback", "on_rejected", "on_limit", "or_return"],
    }
    "decision" decision: Assigned { synonyms: &["bind", "quota_name", "outcome"], is_word: true }
    "soft" soft: Flag {
        excludes: &[(
            "otherwise",
            "with `soft` no call is refused, so that `otherwise` is never returned",
        )],
        needs: Some(("decision", "the body reads in it whether the limit refused the call")),
    }
    "policy" policy: Assigned {}
    "plan" plan: Assigned {
        synonyms: &["subscription", "tier_name", "plan_name"],
        needs: Some(("policy", "it chooses one of the `Plans` there")),
    }
    "request_id" request_id: Assigned {
        synonyms: &["id", "idempotency_key", "dedup", "dedup_key"],
        of_window: true,
        of_store: true,
    }
    "concurrency" concurrency: Assigned {
        synonyms: &[
            "max_concurrent", "max_concurrency", "in_flight", "max_in_flight", "semaphore",
        ],
        of_policy: true,
        of_store: true,
    }
    "concurrency_timeout" concurrency_timeout: Assigned {
        of_policy: true,
        needs: Some(("concurrency", "it is the time after which a permit is free")),
    }
    "settle" settle: Assigned {
        synonyms: &["actual", "actual_cost", "cost_after", "refund", "refund_if"],
        of_window: true,
        of_store: true,
    }
    "lease" lease: Assigned {
        synonyms: &["prefetch", "batch", "reserve_ahead", "local_cache"],
        of_policy: true,
        of_window: true,
    }
    "zone" zone: Assigned {
        synonyms: &["timezone", "time_zone", "tz"],
        of_policy: true,
        of_window: true,
    }
    "quota_unit" quota_unit: Assigned {
        synonyms: &["unit", "qu"],
        is_word: true,
        of_policy: true,
        of_window: true,
    }
    "leave" leave: Assigned {
        synonyms: &["priority", "reserve", "headroom", "importance"],
        of_store: true,
        faults: Some((
            &["max_wait", "count_rejected"],
            |argument| PolicyFault::LeaveWith { argument },
        )),
    }
    "warn_at" warn_at: Assigned {
        synonyms: &["warn", "soft_limit", "alert_at", "notify_at"],
        of_window: true,
    }
    "block" block: Assigned {
        synonyms: &["ban", "penalty", "lockout", "cooldown", "jail", "block_for", "block_duration"],
        of_policy: true,
        of_window: true,
        of_store: true,
        faults: Some((
            &["max_wait", "request_id", "leave"],
            |argument| PolicyFault::BlockWith { argument },
        )),
    }
    "crate" krate: Option<Arg<Path>> {}
}

arguments! {
    /// The arguments of one `tier(period = .., threshold = ..)`.
    TierArgs {}, TIER_ARGUMENTS:

    "period" period: Assigned {}
    "threshold" threshold: Assigned {}
}

impl Args {
    /// Parses every argument; those with a syntax error are added to `errors`.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let all = |input: ParseStream<'_>| {
            each_argument(input, errors, |name, input, errors| {
                args.written.push(name.clone());
                args.take(name, input, errors)
            })
        };
        if let Err(error) = all.parse2(tokens) {
            errors.push(error);
        }
        args
    }
}

impl Slot for Tiers {
    fn parse(
        &mut self,
        name: Ident,
        input: ParseStream<'_>,
        errors: &mut Errors,
    ) -> syn::Result<()> {
        if !input.peek(syn::token::Paren) {
            let message = "`tier` is written `tier(period = .., threshold = ..)`";
            return Err(syn::Error::new(name.span(), message));
        }
        let content;
        parenthesized!(content in input);
        let mut value = TierArgs::default();
        each_argument(&content, errors, |name, input, errors| value.take(name, input, errors))?;
        self.push(Arg { name, value });
        Ok(())
    }
}

fn unknown_name(unknown: &str, span: Span, table: &[Argument]) -> syn::Error {
    let names = || table.iter().map(|argument| argument.name);
    // The arguments of a tier have the synonyms of those of the whole limit.
    let synonym = table.iter().find(|argument| {
        let whole = ARGUMENTS.iter().find(|whole| whole.name == argument.name);
        whole.unwrap_or(argument).synonyms.contains(&unknown)
    });
    let message = if let Some(Argument { name, .. }) = synonym {
        format!("unknown argument `{unknown}`; here it is called `{name}`")
    } else if let Some(instead) = instead(unknown) {
        format!("unknown argument `{unknown}`; {instead}")
    } else if let Some(name) = nearest(unknown, names()) {
        format!("unknown argument `{unknown}`; did you mean `{name}`?")
    } else {
        format!("unknown argument `{unknown}`; the arguments are {}", list(names()))
    };
    syn::Error::new(span, message)
}
