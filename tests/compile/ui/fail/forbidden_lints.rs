//! Wrong arguments are the only error where lints are forbidden. Parameters that they name are not unused.
#![forbid(unused_variables)]

use std::pin::Pin;

use ratelimit_runtime::{RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

#[rate_limit(treshold = 1, key = (user, format!("{tenant}")))]
async fn plain(user: u32, (tenant, _): (u32, u32)) -> Done {
    Ok(())
}

#[rate_limit(treshold = 1, key = id)]
fn boxed(id: u32, name: &str) -> Pin<Box<dyn Future<Output = Done>>> {
    let name = name.to_owned();
    Box::pin(async move {
        drop(name);
        Ok(())
    })
}

/// The future borrows none of the parameters that are words of the arguments, too.
#[rate_limit(treshold = 1, key = id, name = "name")]
fn words(id: u32, name: String, key: &str) -> Pin<Box<dyn Future<Output = Done> + Send>> {
    let moved = name;
    let key = key.to_owned();
    Box::pin(async move {
        drop((id, moved, key));
        Ok(())
    })
}

#[async_trait::async_trait]
trait Service {
    async fn method(&self, pair: (u32, u32)) -> Done;
}

struct Mine;

#[async_trait::async_trait]
impl Service for Mine {
    #[rate_limit(treshold = 1, key = (first, second))]
    async fn method(&self, (first, second): (u32, u32)) -> Done {
        Ok(())
    }
}

fn main() {}
