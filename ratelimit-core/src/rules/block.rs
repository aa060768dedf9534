//! The rules of blocks, for which a caller is shut out who exceeds a limit.

use super::{Argument, Draft, Violations};
use crate::{PolicyFault, bounds::MAX_BLOCKS};

/// The minimum length in microseconds: 1 ms.
const MIN_BLOCK: u64 = 1_000;

/// The maximum length in microseconds: 31 days.
const MAX_BLOCK: u64 = 31 * 24 * 60 * 60 * 1_000_000;

/// Finds every rule that the lengths break.
pub(super) fn find(draft: &Draft<'_>, found: &mut Violations) {
    let lengths = draft.block;
    for (index, length) in lengths.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| lengths[before]);
        let fault = match *length {
            _ if index == MAX_BLOCKS => Some(PolicyFault::TooManyBlocks),
            Some(length) if !(MIN_BLOCK..=MAX_BLOCK).contains(&length) => {
                Some(PolicyFault::BlockOutOfRange { length })
            }
            Some(length) if before.is_some_and(|before| length <= before) => {
                Some(PolicyFault::BlockDoesNotGrow)
            }
            _ => None,
        };
        found.add(Argument::Block(index), fault);
    }
}
