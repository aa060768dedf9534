//! The texts of the algorithms' scripts.

/// A script: alone, and behind that of the permits.
macro_rules! texts {
    ($($text:expr),+ $(,)?) => {
        [
            concat!($($text),+),
            concat!(
                include_str!("permits.lua"),
                "\nlocal ARGV = { unpack(ARGV, 5) }\nlocal function decide(...)\n",
                $($text),+,
                "end\n\nreturn with_permit(decide)\n",
            ),
        ]
    };
}

/// The script of an algorithm that counts for each tier, whose files are the body of a function.
macro_rules! per_tier {
    ($($file:literal),+) => {
        texts!(
            include_str!("../../algorithms/per_tier.lua"),
            "local function rule(stored, now, op, cost, count_rejected, taken_at)\n",
            include_str!("../../algorithms/per_tier_rule.lua"),
            $(include_str!($file)),+,
            "end\n\n",
            include_str!("../../algorithms/per_tier_call.lua"),
            include_str!("../../algorithms/per_tier_line.lua"),
        )
    };
}

pub(super) const SLIDING_WINDOW: [&str; 2] =
    texts!(include_str!("../../algorithms/sliding_window.lua"));

pub(super) const SLIDING_COUNTER: [&str; 2] =
    per_tier!("../../algorithms/quotients.lua", "../../algorithms/sliding_counter.lua");

pub(super) const FIXED_WINDOW: [&str; 2] = per_tier!("../../algorithms/fixed_window.lua");

pub(super) const TOKEN_BUCKET: [&str; 2] =
    per_tier!("../../algorithms/quotients.lua", "../../algorithms/token_bucket.lua");

pub(super) const WEIGHTED_WINDOW: [&str; 2] =
    texts!(include_str!("../../algorithms/weighted_window.lua"));

/// The text for policies of `concurrency` alone, which is never sent without the permits.
pub(super) const WITHOUT_WINDOW: [&str; 2] = texts!(include_str!("without_window.lua"));
