//! An `unsafe fn` stays one, and the attribute adds nothing unsafe to it.
#![deny(warnings)]

use ratelimit_runtime::{RateLimitError, rate_limit};

#[rate_limit(key = number)]
async unsafe fn dangerous(number: u8) -> Result<u8, RateLimitError> {
    Ok(number)
}

fn main() {
    // SAFETY: nothing is asked of the caller.
    drop(unsafe { dangerous(1) });
}
