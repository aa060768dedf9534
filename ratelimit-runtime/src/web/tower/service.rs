//! The service that a layer wraps, and the future of its calls.

use std::{
    future::poll_fn,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tower_service::Service;

/// The future of a layer's call.
pub type ResponseFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// A service and its readiness. A clone starts unready.
#[derive(Debug)]
pub(in crate::web) struct InnerService<S> {
    service: S,
    /// `true` if this value, and not one of its clones, has been polled ready.
    is_ready: bool,
}

impl<S: Clone> Clone for InnerService<S> {
    /// Returns an unready clone: readiness belongs to the value that was polled.
    fn clone(&self) -> Self {
        Self::new(self.service.clone())
    }
}

impl<S> InnerService<S> {
    pub(in crate::web) fn new(service: S) -> Self {
        Self { service, is_ready: false }
    }

    pub(in crate::web) fn poll_ready<Q>(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), S::Error>>
    where
        S: Service<Q>,
    {
        let polled = ready!(self.service.poll_ready(cx));
        self.is_ready = polled.is_ok();
        Poll::Ready(polled)
    }

    /// Takes the service that was polled ready, and leaves a clone.
    pub(in crate::web) fn take(&mut self) -> Self
    where
        S: Clone,
    {
        let clone = self.clone();
        mem::replace(self, clone)
    }

    /// Calls the service, once it is ready.
    pub(in crate::web) async fn call<Q>(mut self, request: Q) -> Result<S::Response, S::Error>
    where
        S: Service<Q>,
    {
        if !self.is_ready {
            poll_fn(|cx| self.poll_ready(cx)).await?;
        }
        self.service.call(request).await
    }
}
