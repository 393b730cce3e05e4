//! Lending block numbers to data threads.

use crate::{commit::committer::Committer, error::PoolError};

/// The most numbers that one step lends.
const STEP: usize = 8192;

impl Committer {
    /// Lends numbers if data threads want some. False if they want none.
    pub(crate) async fn lend_numbers(&mut self) -> Result<bool, PoolError> {
        let slice = self.slice.clone();
        let numbers = slice.front.placer.numbers();
        if !numbers.is_short() {
            return Ok(false);
        }
        for _ in 0..STEP {
            if numbers.has_enough() {
                break;
            }
            numbers.lend(self.take_block_number().await?);
        }
        self.let_go_of_pages();
        Ok(true)
    }
}
