//! A future that was `Send` stays so, also when a parameter is not `Sync` and the key makes
//! temporaries that are not `Send`.

use std::{cell::Cell, fmt, rc::Rc};

use ratelimit_runtime::{RateLimitError, rate_limit};

struct NotSync(Cell<u32>);

impl fmt::Display for NotSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.get().fmt(f)
    }
}

#[rate_limit(key = (caller, caller.0.get(), Rc::new(1)))]
async fn handler(caller: NotSync) -> Result<u32, RateLimitError> {
    Ok(caller.0.into_inner())
}

fn assert_send<T: Send>(_: T) {}

fn main() {
    assert_send(handler(NotSync(Cell::new(1))));
}
