//! A boxed future, by `#[async_trait]` or by hand, is checked before any of its code runs.

#![allow(
    clippy::let_and_return,
    clippy::let_unit_value,
    clippy::redundant_else,
    clippy::unused_async,
    reason = "the futures are written as `#[async_trait]` writes them, or nearly so"
)]

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use ratelimit_runtime::{RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;
type Boxed<'a> = Pin<Box<dyn Future<Output = Done> + Send + 'a>>;

/// The effects of a test's calls.
struct Till(AtomicU32);

impl Till {
    fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    async fn pay(&self) -> Done {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn paid(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

#[rate_limit(threshold = 1, key = 1)]
fn a_block_after_the_payment(till: &Till) -> Boxed<'_> {
    Box::pin(async move {
        till.pay().await?;
        {
            let _receipt = till.paid();
        }
        Ok(())
    })
}

#[rate_limit(threshold = 1, key = 1)]
fn a_binding_that_pays(till: &Till) -> Boxed<'_> {
    Box::pin(async move {
        let till = till;
        let __arg1 = till.pay().await?;
        let _: () = { __arg1 };
        Ok(())
    })
}

#[rate_limit(threshold = 1, key = 1)]
fn names_of_async_trait(till: &Till) -> Boxed<'_> {
    Box::pin(async move {
        let (first, ()) = {
            let __arg0 = (till.pay().await, ());
            __arg0
        };
        let __ret: Done = { first };
        __ret
    })
}

#[rate_limit(threshold = 1, key = 1)]
fn a_condition_that_pays(till: &Till) -> Boxed<'_> {
    Box::pin(async move {
        if let Some(__ret) = None::<Done> {
            return __ret;
        } else {
            till.pay().await?;
        }
        let __ret: Done = { Ok(()) };
        __ret
    })
}

#[rate_limit(threshold = 1, key = 1)]
fn clones_before_the_future(till: &Arc<Till>) -> Boxed<'static> {
    let (other, name) = (Arc::clone(till), "till".to_owned());
    let till = till.clone();
    Box::pin(async move {
        let _ = (other.paid(), name);
        till.pay().await
    })
}

#[rate_limit(threshold = 1, key = till.paid() / 100)]
fn another_name_for_it(till: Arc<Till>) -> Boxed<'static> {
    Box::pin(async move {
        let other = till;
        other.pay().await
    })
}

impl Till {
    #[rate_limit(threshold = 1, key = self.paid() / 100)]
    fn another_name_for_itself(self: Arc<Self>) -> Boxed<'static> {
        Box::pin(async move {
            let this = self;
            this.pay().await
        })
    }
}

#[rate_limit(threshold = 1, key = till.paid() / 100)]
fn an_item_before_the_future(till: &Till) -> Boxed<'_> {
    async fn pay(till: &Till) -> Done {
        till.pay().await
    }

    Box::pin(async move {
        {
            pay(till).await?;
        }
        Ok(())
    })
}

#[tokio::test]
async fn a_future_boxed_by_hand_does_nothing_on_a_refused_call() {
    for call in [
        a_block_after_the_payment,
        a_binding_that_pays,
        names_of_async_trait,
        a_condition_that_pays,
        an_item_before_the_future,
    ] {
        let till = Till::new();
        call(&till).await.unwrap();
        call(&till).await.unwrap_err();
        assert_eq!(till.paid(), 1);
    }
}

#[tokio::test]
async fn a_future_may_take_clones_with_it() {
    let till = Arc::new(Till::new());
    clones_before_the_future(&till).await.unwrap();
    clones_before_the_future(&till).await.unwrap_err();
    assert_eq!(till.paid(), 1);
}

#[tokio::test]
async fn a_future_may_move_what_its_key_is_made_of() {
    for call in [another_name_for_it, Till::another_name_for_itself] {
        let till = Arc::new(Till::new());
        call(Arc::clone(&till)).await.unwrap();
        call(Arc::clone(&till)).await.unwrap_err();
        assert_eq!(till.paid(), 1);
    }
}

#[async_trait::async_trait]
trait Shop {
    async fn sell(&self, order: (u32, &str), mut price: u32) -> Done;
    async fn give(till: &Till) -> Done;
}

#[async_trait::async_trait]
impl Shop for Till {
    /// The key names bindings that precede the body.
    #[rate_limit(threshold = 1, key = (self.paid() / 100, buyer, item, price))]
    async fn sell(&self, (item, buyer): (u32, &str), mut price: u32) -> Done {
        self.pay().await?;
        {
            price += item;
        }
        let _ = (price, buyer);
        Ok(())
    }

    #[rate_limit(threshold = 1, key = 1)]
    async fn give(till: &Till) -> Done {
        till.pay().await?;
        {
            let _receipt = till.paid();
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_method_under_async_trait_does_nothing_on_a_refused_call() {
    let till = Till::new();
    till.sell((1, "alice"), 5).await.unwrap();
    till.sell((1, "alice"), 5).await.unwrap_err();
    till.sell((1, "bob"), 5).await.unwrap();
    assert_eq!(till.paid(), 2);
    Till::give(&till).await.unwrap();
    Till::give(&till).await.unwrap_err();
    assert_eq!(till.paid(), 3);
}
