//! The texts of the scripts. Each is some files that define functions, and one that calls them.

/// All names of arguments, their values, and the numbers of a reply.
macro_rules! names {
    () => {
        concat!(include_str!("arguments.lua"), include_str!("names.lua"))
    };
}

/// A function: the text of its files, in which its parameters are `...`. It has names of its own:
/// those around it would be upvalues, which cost more.
macro_rules! function {
    ($name:literal, $($text:expr),+ $(,)?) => {
        concat!("local function ", $name, "(...)\n", names!(), $($text,)+ "end\n\n")
    };
}

/// A script of functions and a decision: alone, and behind the gates.
macro_rules! texts {
    ($($functions:expr),*; $decision:expr) => {
        [
            concat!($($functions,)* $decision),
            concat!(
                $($functions,)*
                "local function decide(ARGV)\n",
                $decision,
                "end\n\n",
                names!(),
                include_str!("gates.lua"),
            ),
        ]
    };
}

/// The script that exchanges leases by functions and `exchange(ARGV, lease, ..)`, with further
/// arguments.
macro_rules! lease {
    ($($functions:expr),+; $exchange:expr, $($argument:literal),*) => {
        concat!(
            names!(),
            include_str!("lease.lua"),
            $($functions,)+
            function!("exchange", $exchange),
            "return exchange(arguments, lease",
            $(", ", $argument,)*
            ")\n",
        )
    };
}

/// The script of an algorithm that counts for each tier.
macro_rules! per_tier {
    ($($file:literal),+) => {
        texts!(
            rule!($($file),+),
            function!("in_line", include_str!("../../algorithms/per_tier_line.lua"));
            concat!(names!(), include_str!("../../algorithms/per_tier_call.lua"))
        )
    };
}

/// The functions of such an algorithm.
macro_rules! rule {
    ($($file:literal),+) => {
        concat!(
            include_str!("../../algorithms/per_tier.lua"),
            $(include_str!($file),)+
            function!("rule", include_str!("../../algorithms/per_tier_rule.lua")),
        )
    };
}

/// The script that exchanges the leases of such an algorithm.
macro_rules! per_tier_lease {
    ($($file:literal),+; $($argument:literal),+) => {
        lease!(
            rule!($($file),+);
            include_str!("../../algorithms/per_tier_lease.lua"), $($argument),+
        )
    };
}

/// The functions of a log of entries.
macro_rules! entries {
    () => {
        concat!(
            include_str!("../../algorithms/log/entry.lua"),
            function!(
                "general",
                include_str!("../../algorithms/log/state.lua"),
                include_str!("../../algorithms/log/changes.lua"),
                include_str!("../../algorithms/log/general.lua"),
            ),
        )
    };
}

/// The straight way of most calls comes first, and needs neither the functions nor all names.
pub(super) const SLIDING_WINDOW: [&str; 2] = texts!(; concat!(
    include_str!("arguments.lua"),
    include_str!("../../algorithms/log.lua"),
    entries!(),
    function!("straight", include_str!("../../algorithms/log/entries_straight.lua")),
    "return straight(log, ARGV, now) or general(log, ARGV, now)\n",
));

pub(super) const SLIDING_COUNTER: [&str; 2] = per_tier!("../../algorithms/sliding_counter.lua");

pub(super) const FIXED_WINDOW: [&str; 2] =
    per_tier!("../../algorithms/fixed_window.lua", "../../algorithms/window_units.lua");

pub(super) const TOKEN_BUCKET: [&str; 2] = per_tier!("../../algorithms/token_bucket.lua");

pub(super) const CALENDAR_WINDOW: [&str; 2] =
    per_tier!("../../algorithms/window_units.lua", "../../algorithms/calendar_window.lua");

/// The text for policies of `concurrency` alone, which is never sent without the gates.
pub(super) const WITHOUT_WINDOW: [&str; 2] = texts!(; include_str!("without_window.lua"));

pub(super) const LEASE_OF_COUNTER: &str =
    per_tier_lease!("../../algorithms/sliding_counter.lua"; "ends_in");

pub(super) const LEASE_OF_FIXED: &str = per_tier_lease!(
    "../../algorithms/fixed_window.lua",
    "../../algorithms/window_units.lua";
    "ends_in"
);

pub(super) const LEASE_OF_BUCKET: &str = per_tier_lease!(
    "../../algorithms/token_bucket.lua",
    "../../algorithms/token_bucket_lease.lua";
    "nil",
    "without_room",
    "come_back"
);

pub(super) const LEASE_OF_LOG: &str =
    lease!(entries!(); include_str!("../../algorithms/log/lease.lua"),);

/// The renewal of permits, named by the first of them.
pub(super) const RENEW: &str = include_str!("renew.lua");
