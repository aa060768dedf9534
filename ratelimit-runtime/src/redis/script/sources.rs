//! The texts of the scripts.

/// A script whose reply names its call, so that the reply to another one is noticed. The first number of the reply
/// is the argument of this position, negative unless the call was admitted. If the condition is true, the reply has
/// no verdict, and this number is inserted before it. The texts before the semicolon name their replies themselves.
macro_rules! echoing {
    ($position:literal, $condition:literal, $($hot:expr),*; $($text:expr),+ $(,)?) => {
        concat!(
            $($hot,)*
            "local function answer()\n",
            $($text),+,
            "end\n\nlocal reply, echo = answer(), ARGV[",
            $position,
            "]\nif ",
            $condition,
            " then\n  table.insert(reply, 1, 0)\nend\n",
            "reply[1] = (reply[1] or 0) > 0 and echo + 0 or -echo\nreturn reply\n",
        )
    };
}

/// A script alone, and the same behind the gates. The texts before the semicolon decide most calls.
macro_rules! texts {
    ($($hot:expr),*; $($text:expr),+ $(,)?) => {
        [
            // An advance and the operations after it have no verdict.
            echoing!("4", "ARGV[1] > '2'", $($hot),*; $($text),+),
            echoing!(
                "9",
                "false",
                ;
                include_str!("gates.lua"),
                "\nlocal function decide(ARGV)\n",
                $($hot,)*
                $($text),+,
                "end\n\nreturn gates(decide)\n",
            ),
        ]
    };
}

/// The script of an algorithm that counts for each tier.
macro_rules! per_tier {
    ($($file:literal),+) => {
        texts!(
            rule!($($file),+),
            include_str!("../../algorithms/per_tier_call.lua");
            include_str!("../../algorithms/per_tier_line.lua"),
        )
    };
}

/// The files of such an algorithm, up to its call.
macro_rules! rule {
    ($($file:literal),+) => {
        concat!(
            include_str!("../../algorithms/per_tier.lua"),
            $(include_str!($file),)+
            include_str!("../../algorithms/per_tier_rule.lua"),
        )
    };
}

/// The script that exchanges the leases of an algorithm that counts for each tier.
macro_rules! per_tier_lease {
    ($($file:literal),+; $lease:literal) => {
        echoing!(
            "14",
            "true",
            ;
            include_str!("lease.lua"),
            rule!($($file),+),
            include_str!($lease),
            include_str!("../../algorithms/per_tier_lease.lua"),
        )
    };
}

pub(super) const SLIDING_WINDOW: [&str; 2] = texts!(
    include_str!("../../algorithms/sliding_window.lua");
    include_str!("../../algorithms/sliding_window_general.lua"),
);

pub(super) const SLIDING_COUNTER: [&str; 2] = per_tier!("../../algorithms/sliding_counter.lua");

pub(super) const FIXED_WINDOW: [&str; 2] =
    per_tier!("../../algorithms/fixed_window.lua", "../../algorithms/window_units.lua");

pub(super) const TOKEN_BUCKET: [&str; 2] = per_tier!("../../algorithms/token_bucket.lua");

pub(super) const CALENDAR_WINDOW: [&str; 2] =
    per_tier!("../../algorithms/calendar_window.lua", "../../algorithms/window_units.lua");

pub(super) const WEIGHTED_WINDOW: [&str; 2] = texts!(
    "local is_leased = false\n",
    include_str!("../../algorithms/weighted_window.lua");
    include_str!("../../algorithms/weighted_window_general.lua"),
    include_str!("../../algorithms/weighted_window_decide.lua"),
);

/// The text for policies of `concurrency` alone, which is never sent without the gates.
pub(super) const WITHOUT_WINDOW: [&str; 2] = texts!(; include_str!("without_window.lua"));

pub(super) const LEASE_OF_COUNTER: &str = per_tier_lease!(
    "../../algorithms/sliding_counter.lua";
    "../../algorithms/sliding_counter_lease.lua"
);

pub(super) const LEASE_OF_FIXED: &str = per_tier_lease!(
    "../../algorithms/fixed_window.lua",
    "../../algorithms/window_units.lua";
    "../../algorithms/fixed_window_lease.lua"
);

pub(super) const LEASE_OF_BUCKET: &str =
    per_tier_lease!("../../algorithms/token_bucket.lua"; "../../algorithms/token_bucket_lease.lua");

pub(super) const LEASE_OF_LOG: &str = echoing!(
    "14",
    "true",
    ;
    include_str!("lease.lua"),
    "local function decide(is_leased)\n",
    include_str!("../../algorithms/weighted_window.lua"),
    include_str!("../../algorithms/weighted_window_general.lua"),
    include_str!("../../algorithms/weighted_window_lease.lua"),
    include_str!("../../algorithms/weighted_window_decide.lua"),
    "end\n",
    include_str!("../../algorithms/weighted_window_leased.lua"),
);

/// The renewal of permits, named by the first of them.
pub(super) const RENEW: &str = echoing!("3", "true",; include_str!("renew.lua"));
