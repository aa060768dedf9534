//! The texts of the algorithms' scripts.

/// The text of an algorithm's files: alone, and behind that of the permits.
macro_rules! texts {
    ($($file:literal),+) => {
        [
            concat!($(include_str!($file)),+),
            concat!(
                include_str!("permits.lua"),
                "\nlocal ARGV = { unpack(ARGV, 5) }\nlocal function decide(...)\n",
                $(include_str!($file)),+,
                "end\n\nreturn with_permit(decide)\n",
            ),
        ]
    };
}

pub(super) const SLIDING_WINDOW: [&str; 2] = texts!("../../algorithms/sliding_window.lua");

pub(super) const SLIDING_COUNTER: [&str; 2] = texts!(
    "../../algorithms/per_tier.lua",
    "../../algorithms/quotients.lua",
    "../../algorithms/sliding_counter.lua"
);

pub(super) const FIXED_WINDOW: [&str; 2] =
    texts!("../../algorithms/per_tier.lua", "../../algorithms/fixed_window.lua");

pub(super) const TOKEN_BUCKET: [&str; 2] = texts!(
    "../../algorithms/per_tier.lua",
    "../../algorithms/quotients.lua",
    "../../algorithms/token_bucket.lua"
);

pub(super) const WEIGHTED_WINDOW: [&str; 2] = texts!("../../algorithms/weighted_window.lua");

/// The text for policies of `concurrency` alone, which is never sent without the permits.
pub(super) const WITHOUT_WINDOW: [&str; 2] = texts!("without_window.lua");
