//! The bounds that both rules and their faults name.

/// The maximum number of tiers of one policy.
pub const MAX_TIERS: usize = 8;

/// The maximum number of entries of an exact log. A log whose threshold is at most this keeps the
/// times of single units.
pub const MAX_ENTRIES: usize = 100_000;

/// The maximum number of lengths of a block.
pub const MAX_BLOCKS: usize = 4;
