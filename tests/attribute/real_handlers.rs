//! Handlers as real services write them compile without a warning and run.
#![deny(
    warnings,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    unused,
    rust_2018_idioms,
    missing_docs
)]
#![allow(clippy::redundant_pub_crate, reason = "`unreachable_pub` asks for the contrary")]

use std::{fmt::Display, future::Future, pin::Pin, sync::Arc, time::Duration};

use ratelimit_runtime::{FromRejection, Limiter, RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

/// Awaits the call twice: the limit of one lets the first pass and refuses the second.
async fn once<T, E, F: Future<Output = Result<T, E>>>(mut call: impl FnMut() -> F) {
    assert!(call().await.is_ok());
    assert!(call().await.is_err());
}

mod under_async_trait {
    use super::{Arc, Display, Done, Duration, RateLimitError, once, rate_limit};

    #[async_trait::async_trait]
    trait Repository<T: Display + Send + Sync + 'static>: Send + Sync {
        async fn by_reference(&self, id: &T) -> Result<String, RateLimitError>;
        async fn by_mutable(&mut self, (a, b): (u32, T), _: bool) -> Done;
        async fn by_arc(self: Arc<Self>, mut calls: u32) -> Result<u32, RateLimitError>;
        async fn by_value(self: Box<Self>) -> Done;
        async fn without_receiver(id: T) -> Done
        where
            Self: Sized;
        async fn nothing_but_a_panic(&self);

        #[rate_limit(threshold = 1, key = id)]
        async fn by_default(&self, id: u64) -> Done {
            let _ = id;
            Ok(())
        }
    }

    #[derive(Clone)]
    struct Memory {
        tenant: String,
        period: Duration,
    }

    #[async_trait::async_trait]
    impl<T: Display + Send + Sync + 'static> Repository<T> for Memory {
        #[rate_limit(period = self.period, threshold = 1, key = (self.tenant, id))]
        async fn by_reference(&self, id: &T) -> Result<String, RateLimitError> {
            Ok(format!("{}/{id}", self.tenant))
        }

        #[rate_limit(threshold = 1, key = (a, b, format!("<{}>", self.tenant)))]
        async fn by_mutable(&mut self, (a, b): (u32, T), _: bool) -> Done {
            self.tenant = format!("{a}{b}");
            Ok(())
        }

        #[rate_limit(threshold = calls, key = self.tenant)]
        async fn by_arc(self: Arc<Self>, mut calls: u32) -> Result<u32, RateLimitError> {
            calls += 1;
            Ok(calls)
        }

        #[rate_limit(threshold = 1, key = self.tenant)]
        async fn by_value(self: Box<Self>) -> Done {
            drop(self.tenant);
            Ok(())
        }

        #[rate_limit(threshold = 1, key = id)]
        async fn without_receiver(id: T) -> Done {
            drop(id);
            Ok(())
        }

        #[tracing::instrument(skip(self))]
        async fn nothing_but_a_panic(&self) {}
    }

    struct Other;

    #[async_trait::async_trait]
    impl Repository<u8> for Other {
        #[tracing::instrument(skip(self))]
        #[rate_limit(threshold = 1)]
        async fn by_reference(&self, id: &u8) -> Result<String, RateLimitError> {
            Ok(id.to_string())
        }

        #[rate_limit(threshold = 1)]
        #[tracing::instrument(skip(self))]
        async fn by_mutable(&mut self, (a, b): (u32, u8), _: bool) -> Done {
            let _ = (a, b);
            Ok(())
        }

        async fn by_arc(self: Arc<Self>, calls: u32) -> Result<u32, RateLimitError> {
            Ok(calls)
        }

        async fn by_value(self: Box<Self>) -> Done {
            Ok(())
        }

        async fn without_receiver(_: u8) -> Done {
            Ok(())
        }

        async fn nothing_but_a_panic(&self) {}
    }

    #[tokio::test]
    async fn methods_under_async_trait_are_limited() {
        let memory = Memory { tenant: "acme".to_owned(), period: Duration::from_secs(60) };
        once(|| memory.by_reference(&1)).await;
        assert_eq!(memory.by_reference(&2).await.unwrap(), "acme/2");
        assert!(memory.clone().by_mutable((1, "x"), true).await.is_ok());
        assert!(memory.clone().by_mutable((1, "x"), true).await.is_err());
        assert!(memory.clone().by_mutable((2, "x"), true).await.is_ok());
        let shared = Arc::new(memory.clone());
        once(|| Repository::<u8>::by_arc(Arc::clone(&shared), 1)).await;
        once(|| Repository::<u8>::by_value(Box::new(memory.clone()))).await;
        once(|| Memory::without_receiver("a")).await;
        once(|| Repository::<u8>::by_default(&memory, 7)).await;
        once(|| Other.by_default(7)).await;
        once(|| Other.by_reference(&1)).await;
        assert!(Other.by_mutable((1, 1), true).await.is_ok());
        assert!(Other.by_mutable((1, 1), true).await.is_err());
        Other.nothing_but_a_panic().await;
        Repository::<u8>::nothing_but_a_panic(&memory).await;
        assert_eq!(Arc::new(Other).by_arc(1).await.unwrap(), 1);
        Box::new(Other).by_value().await.unwrap();
        Other::without_receiver(1).await.unwrap();
    }
}

/// Generic code, native `async fn` in traits, receivers of every kind.
mod generic {
    use super::{Arc, Display, Done, Limiter, Pin, RateLimitError, once, rate_limit};

    struct Repository<T, const N: usize> {
        items: [T; N],
        limiter: Limiter,
    }

    impl<T, const N: usize> Repository<T, N>
    where
        T: Display + Clone + Send + Sync + 'static,
    {
        #[rate_limit(threshold = 1, key = (index, self.items[index]), limiter = self.limiter)]
        #[expect(clippy::needless_lifetimes, reason = "handlers have named lifetimes")]
        async fn get<'a>(&'a self, index: usize) -> Result<&'a T, RateLimitError> {
            Ok(&self.items[index])
        }

        #[rate_limit(threshold = 1, key = self.items.len(), limiter = self.limiter)]
        async fn pinned(mut self: Pin<&mut Self>) -> Result<usize, RateLimitError>
        where
            T: Unpin,
        {
            self.items.rotate_left(1);
            Ok(N)
        }

        #[rate_limit(threshold = 1, limiter = self.limiter)]
        async fn shared(self: Arc<Self>) -> Result<T, RateLimitError> {
            Ok(self.items[0].clone())
        }

        #[rate_limit(threshold = 1, limiter = self.limiter)]
        async fn mutable(&mut self, item: T) -> Done {
            self.items[0] = item;
            Ok(())
        }
    }

    trait Service {
        #[rate_limit(threshold = 1, key = id)]
        async fn provided(&self, id: impl Display + Send) -> Result<String, RateLimitError> {
            Ok(id.to_string())
        }
    }

    impl<T, const N: usize> Service for Repository<T, N> {}

    #[rate_limit(threshold = 1)]
    #[expect(improper_ctypes_definitions, reason = "this is about the signature")]
    pub(super) async extern "C" fn foreign() -> Done {
        Ok(())
    }

    #[tokio::test]
    async fn generic_handlers_are_limited() {
        let new = || Repository { items: ["a", "b"], limiter: Limiter::in_memory() };
        let repository = new();
        once(|| repository.get(0)).await;
        assert_eq!(*repository.get(1).await.unwrap(), "b");
        once(|| repository.provided(1)).await;
        let shared = Arc::new(new());
        once(|| Arc::clone(&shared).shared()).await;
        let mut own = new();
        assert_eq!(Pin::new(&mut own).pinned().await.unwrap(), 2);
        assert!(Pin::new(&mut own).pinned().await.is_err());
        own.mutable("c").await.unwrap();
        assert!(own.mutable("c").await.is_err());
        once(|| foreign()).await;
    }
}

mod plain {
    use super::{Display, Done, FromRejection, RateLimitError, once, rate_limit};

    #[rate_limit(threshold = 1, key = (a.0, b))]
    pub(super) async fn patterns(
        a @ (x, _): (u32, u32),
        [b, ..]: [u8; 2],
        mut c: Vec<u8>,
        (): (),
        &d: &u8,
    ) -> Result<usize, RateLimitError> {
        let _ = a;
        c.push(b + d);
        Ok(c.len() + x as usize)
    }

    #[rate_limit(threshold = 1, key = r#type)]
    pub(super) async fn r#match(r#type: &str) -> Result<usize, RateLimitError> {
        Ok(r#type.len())
    }

    #[rate_limit(threshold = 1, key = always)]
    pub(super) async fn conditional(
        #[cfg(test)] always: u32,
        #[cfg(not(test))] never: u32,
    ) -> Done {
        let _ = always;
        Ok(())
    }

    #[rate_limit(threshold = 1)]
    pub(super) async fn opaque(item: impl Display + Send) -> Result<impl Display, RateLimitError> {
        Ok(format!("{item}"))
    }

    macro_rules! handlers {
        ($($name:ident: $threshold:literal per $period:expr, by $user:ident;)+) => {
            $(
                #[rate_limit(period = $period, threshold = $threshold, key = $user)]
                pub(super) async fn $name($user: u32) -> Result<u32, RateLimitError> {
                    Ok($user)
                }
            )+
        };
    }

    handlers! {
        made_by_macro: 1 per "1m", by user;
        made_by_macro_too: 1 per super::Duration::from_secs(30), by other;
    }

    pub(super) enum Reply {
        Served(u32),
        Busy(RateLimitError),
    }

    impl FromRejection for Reply {
        fn from_rejection(error: RateLimitError) -> Self {
            Self::Busy(error)
        }
    }

    #[rate_limit(threshold = 1)]
    pub(super) async fn reply() -> Reply {
        Reply::Served(1)
    }

    #[rate_limit(threshold = 1)]
    #[tracing::instrument]
    pub(super) async fn instrumented_below(user: u32) -> Done {
        let _ = user;
        Ok(())
    }

    #[tracing::instrument]
    #[rate_limit(threshold = 1, key = user)]
    pub(super) async fn instrumented_above(user: u32) -> Done {
        let _ = user;
        Ok(())
    }

    #[rate_limit(threshold = 1)]
    #[tokio::test]
    async fn a_test_can_be_limited() -> Done {
        Ok(())
    }

    /// A closure has no attributes.
    #[tokio::test]
    async fn an_async_closure_is_limited_by_a_function_in_it() {
        let call = async |user: u32| {
            #[rate_limit(threshold = 1, key = user)]
            async fn limited(user: u32) -> Result<u32, RateLimitError> {
                Ok(user)
            }

            limited(user).await
        };
        once(|| call(1)).await;
    }

    #[tokio::test]
    async fn plain_functions_are_limited() {
        once(|| patterns((1, 2), [3, 4], vec![], (), &5)).await;
        once(|| r#match("a")).await;
        once(|| opaque(1)).await;
        once(|| conditional(1)).await;
        once(|| made_by_macro(1)).await;
        once(|| made_by_macro_too(1)).await;
        once(|| instrumented_above(1)).await;
        once(|| instrumented_below(1)).await;
        assert!(matches!(reply().await, Reply::Served(1)));
        assert!(matches!(reply().await, Reply::Busy(RateLimitError::Exceeded(_))));
    }
}

/// Under the name that `main.rs` has for the runtime.
mod renamed {
    #[limits::rate_limit(threshold = 1, key = user, crate = ::limits)]
    async fn call(user: &str) -> Result<(), limits::RateLimitError> {
        let _ = user;
        Ok(())
    }

    #[tokio::test]
    async fn the_runtime_may_have_another_name() {
        super::once(|| call("alice")).await;
    }
}
