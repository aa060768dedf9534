//! A dense list that grows and shrinks by blocks: no call waits for a copy of the whole list, and
//! it is never half empty.

use std::ops::Index;

use crate::time::Timestamp;

/// The number of items of a full block.
pub(super) const BLOCK_LEN: usize = 64;

/// All blocks but the last are full.
pub(super) struct BlockVec<T> {
    blocks: Vec<Block<T>>,
}

struct Block<T> {
    items: Vec<T>,
    /// A time before which nothing happens to the items, kept for the owner of the list.
    next_due: Timestamp,
}

impl<T> Default for BlockVec<T> {
    fn default() -> Self {
        Self { blocks: Vec::new() }
    }
}

impl<T> BlockVec<T> {
    pub(super) fn len(&self) -> usize {
        let last = self.blocks.last();
        last.map_or(0, |last| (self.blocks.len() - 1) * BLOCK_LEN + last.items.len())
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.blocks.get(at / BLOCK_LEN)?.items.get(at % BLOCK_LEN)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.blocks.get_mut(at / BLOCK_LEN)?.items.get_mut(at % BLOCK_LEN)
    }

    /// Returns the times of all blocks in order.
    pub(super) fn next_dues(&self) -> impl ExactSizeIterator<Item = Timestamp> {
        self.blocks.iter().map(|block| block.next_due)
    }

    /// Sets the time of a block, if it is there.
    pub(super) fn set_next_due(&mut self, block: usize, next_due: Timestamp) {
        if let Some(block) = self.blocks.get_mut(block) {
            block.next_due = next_due;
        }
    }

    /// Brings the time of the block of an item forward, unless it is earlier.
    pub(super) fn bring_forward(&mut self, at: usize, next_due: Timestamp) {
        if let Some(block) = self.blocks.get_mut(at / BLOCK_LEN) {
            block.next_due = next_due.min(block.next_due);
        }
    }

    /// Appends an item to which nothing happens before this time.
    pub(super) fn push(&mut self, item: T, next_due: Timestamp) {
        let items = match self.blocks.last_mut() {
            Some(last) if last.items.len() < BLOCK_LEN => {
                last.items.push(item);
                last.next_due = next_due.min(last.next_due);
                return;
            }
            Some(_) => {
                let mut items = Vec::with_capacity(BLOCK_LEN);
                items.push(item);
                items
            }
            // Most shards of a small store have a few.
            None => vec![item],
        };
        self.blocks.push(Block { items, next_due });
    }

    /// Removes an item; the last one takes its place.
    pub(super) fn swap_remove(&mut self, at: usize) {
        let last = self.blocks.last_mut().and_then(|last| last.items.pop());
        if self.blocks.last().is_some_and(|last| last.items.is_empty()) {
            self.blocks.pop();
        }
        if let (Some(last), Some(place)) = (last, self.get_mut(at)) {
            *place = last;
        }
    }
}

impl<T> Index<usize> for BlockVec<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.blocks[at / BLOCK_LEN].items[at % BLOCK_LEN]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_list_whose_blocks_know_a_time_before_all_of_their_items() {
        let (mut blocks, mut list) = (BlockVec::default(), Vec::new());
        let mut rng = fastrand::Rng::with_seed(7);
        for grows in [9, 5, 1, 9, 0] {
            for _ in 0..500 {
                if rng.u8(..10) < grows {
                    let number = rng.u64(..1_000);
                    blocks.push(number, Timestamp::new(number));
                    list.push(number);
                } else if !list.is_empty() {
                    let at = rng.usize(..list.len());
                    blocks.swap_remove(at);
                    list.swap_remove(at);
                    if let Some(moved) = list.get(at) {
                        blocks.bring_forward(at, Timestamp::new(*moved));
                    }
                }
                assert_eq!(blocks.len(), list.len());
                assert!((0..=list.len()).all(|at| blocks.get(at) == list.get(at)));
                let least = list.chunks(BLOCK_LEN).map(|items| *items.iter().min().unwrap());
                assert!(blocks.next_dues().zip(least).all(|(due, least)| due.get() <= least));
            }
        }
        assert_eq!(blocks.blocks.len(), list.len().div_ceil(BLOCK_LEN));
    }
}
