//! A dense list that grows and shrinks by blocks: no call waits for a copy of the whole list, and it
//! is never half empty.

use std::ops::{Index, IndexMut};

/// The number of items of a full block.
pub(super) const BLOCK_LEN: usize = 64;

/// All blocks but the last are full.
pub(super) struct BlockVec<T> {
    blocks: Vec<Vec<T>>,
}

impl<T> Default for BlockVec<T> {
    fn default() -> Self {
        Self { blocks: Vec::new() }
    }
}

impl<T> BlockVec<T> {
    pub(super) fn len(&self) -> usize {
        self.blocks.last().map_or(0, |last| (self.blocks.len() - 1) * BLOCK_LEN + last.len())
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.blocks.get(at / BLOCK_LEN)?.get(at % BLOCK_LEN)
    }

    pub(super) fn push(&mut self, item: T) {
        match self.blocks.last_mut() {
            Some(last) if last.len() < BLOCK_LEN => last.push(item),
            Some(_) => {
                let mut block = Vec::with_capacity(BLOCK_LEN);
                block.push(item);
                self.blocks.push(block);
            }
            // Most shards of a small store have a few.
            None => self.blocks.push(vec![item]),
        }
    }

    /// Removes an item; the last one takes its place.
    pub(super) fn swap_remove(&mut self, at: usize) {
        let last = self.blocks.last_mut().and_then(Vec::pop);
        if self.blocks.last().is_some_and(Vec::is_empty) {
            self.blocks.pop();
        }
        if let (Some(last), true) = (last, at < self.len()) {
            self[at] = last;
        }
    }
}

impl<T> Index<usize> for BlockVec<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.blocks[at / BLOCK_LEN][at % BLOCK_LEN]
    }
}

impl<T> IndexMut<usize> for BlockVec<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.blocks[at / BLOCK_LEN][at % BLOCK_LEN]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_list() {
        let (mut blocks, mut list) = (BlockVec::default(), Vec::new());
        let mut rng = fastrand::Rng::with_seed(7);
        for grows in [9, 5, 1, 9, 0] {
            for number in 0..500 {
                if rng.u8(..10) < grows {
                    blocks.push(number);
                    list.push(number);
                } else if !list.is_empty() {
                    let at = rng.usize(..list.len());
                    blocks.swap_remove(at);
                    list.swap_remove(at);
                }
                assert_eq!(blocks.len(), list.len());
                assert!((0..=list.len()).all(|at| blocks.get(at) == list.get(at)));
            }
        }
        assert_eq!(blocks.blocks.len(), list.len().div_ceil(BLOCK_LEN));
    }
}
