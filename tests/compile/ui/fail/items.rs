//! Items that cannot be limited.

use ratelimit_runtime::{RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

#[rate_limit(period = 30, threshold = 2)]
fn not_async() -> Done {
    Ok(())
}

#[rate_limit(period = 30, threshold = 2)]
const fn constant() -> Done {
    Ok(())
}

#[rate_limit(period = 30, threshold = 2)]
fn future() -> impl Future<Output = Done> {
    async { Ok(()) }
}

/// As `#[trait_variant::make]` makes of a method with a body.
trait Variant {
    #[rate_limit(period = 30, threshold = 2)]
    fn made(&self) -> impl Future<Output = Result<u32, RateLimitError>> + Send {
        async move { Ok(1) }
    }
}

/// As `#[automock]` does with the attributes of a method.
macro_rules! mocked {
    ($(#[$attribute:meta])* async fn $name:ident, $expect:ident) => {
        struct Mock;

        impl Mock {
            $(#[$attribute])*
            async fn $name(&self) -> Done {
                Ok(())
            }

            $(#[$attribute])*
            fn $expect(&mut self) -> &mut Self {
                self
            }

            fn checkpoint(&mut self) {
                $(#[$attribute])*
                { self.$expect(); }
            }
        }
    };
}

mocked! {
    #[rate_limit(period = 30, threshold = 2)]
    async fn get, expect_get
}

trait Service {
    #[rate_limit(period = 30, threshold = 2)]
    async fn without_a_body(&self) -> Done;
}

#[rate_limit(period = 30, threshold = 2)]
struct NotAFunction;

#[rate_limit(period = 30, threshold = 2)]
impl NotAFunction {}

#[rate_limit(period = 0)]
fn both_wrong() -> Done {
    Ok(())
}

fn main() {
    #[rate_limit(period = 30, threshold = 2)]
    let closure = async || Ok::<_, RateLimitError>(());
    let _ = closure();
    let _ = (not_async(), constant(), future(), NotAFunction, both_wrong());
}
