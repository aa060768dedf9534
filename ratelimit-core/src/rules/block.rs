//! The rules of blocks, for which a caller is shut out who exceeds a limit.

use super::{Argument, Draft};
use crate::{PolicyFault, fault::BlockFault};

/// The maximum number of lengths.
pub const MAX_BLOCKS: usize = 4;

/// The minimum length in microseconds: 1 ms.
const MIN_BLOCK: u64 = 1_000;

/// The maximum length in microseconds: 31 days.
const MAX_BLOCK: u64 = 31 * 24 * 60 * 60 * 1_000_000;

/// Returns every rule that the lengths break.
pub(super) fn faults(draft: &Draft<'_>) -> Vec<(Argument, PolicyFault)> {
    let lengths = draft.block;
    let mut faults = Vec::new();
    for (index, length) in lengths.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| lengths[before]);
        let fault = match *length {
            _ if index == MAX_BLOCKS => Some(BlockFault::TooMany),
            Some(length) if !(MIN_BLOCK..=MAX_BLOCK).contains(&length) => {
                Some(BlockFault::OutOfRange { length })
            }
            Some(length) if before.is_some_and(|before| length <= before) => {
                Some(BlockFault::DoesNotGrow)
            }
            _ => None,
        };
        faults.extend(fault.map(|fault| (Argument::Block(index), PolicyFault::Block(fault))));
    }
    faults
}

/// Returns the rule that an argument of a call breaks beside a block.
#[must_use]
pub const fn block_violation(argument: &'static str) -> PolicyFault {
    PolicyFault::Block(BlockFault::With { argument })
}
