//! A violation of a rule about blocks, and its message.

use std::fmt;

use super::span::Span;
use crate::rules::MAX_BLOCKS;

/// A violation of a rule about blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum BlockFault {
    /// There are more than [`MAX_BLOCKS`] lengths.
    TooMany,
    /// A length is shorter than 1 ms or longer than 31 days.
    OutOfRange {
        /// The length in microseconds.
        length: u64,
    },
    /// A length is not longer than the one before it.
    DoesNotGrow,
    /// A call under a block has an argument that does not go with it.
    With {
        /// The argument.
        argument: &'static str,
    },
}

impl fmt::Display for BlockFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooMany => write!(f, "`block` has at most {MAX_BLOCKS} lengths; remove this one"),
            Self::OutOfRange { length } => {
                let length = Span(length);
                write!(f, "`block` must be at least 1 ms and at most 31 d, but is {length}")
            }
            Self::DoesNotGrow => {
                f.write_str("each length of `block` must be longer than the one before it")
            }
            Self::With { argument } => write!(
                f,
                "`block` does not go with `{argument}`: {}; remove one of them",
                match argument {
                    "max_wait" => "who is shut out for asking too soon does not stand in line",
                    "request_id" =>
                        "a repeat of an admitted call would be refused while its caller is \
                                     blocked",
                    _ =>
                        "a refused call that leaves a share to others would shut out the caller's \
                          other calls",
                }
            ),
        }
    }
}
