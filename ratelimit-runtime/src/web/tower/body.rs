//! Response bodies of `http-body` that hold the permits of their requests.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use http_body::{Body, Frame, SizeHint};

use crate::web::{
    identity::Sealed,
    permits::{PermitBody, Permits},
};

/// A response body that can hold the permits of its request until it has ended: that of axum, that
/// of tonic, and any other body in a [`PermitBody`]. Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot hold the permits of a request until it has ended",
    note = "wrap the body before the layer receives it: `ServiceBuilder::new().layer(..).map_response(|response| response.map(PermitBody::new))`"
)]
pub trait HoldPermits: Sealed {
    /// Returns the body, which holds the permits.
    #[doc(hidden)]
    #[must_use]
    fn hold(self, permits: Permits) -> Self;
}

/// Implements the trait for a type that contains any body.
#[cfg(any(feature = "axum", feature = "tonic"))]
macro_rules! hold_permits {
    ($body:ty) => {
        impl Sealed for $body {}

        impl HoldPermits for $body {
            fn hold(self, permits: Permits) -> Self {
                // The common body is not boxed once more.
                if permits.0.is_empty() || self.is_end_stream() {
                    return self;
                }
                Self::new(PermitBody { body: self, permits })
            }
        }
    };
}

#[cfg(feature = "axum")]
hold_permits!(axum::body::Body);
#[cfg(feature = "tonic")]
hold_permits!(tonic::body::Body);

impl<B> Sealed for PermitBody<B> {}

impl<B: Body> HoldPermits for PermitBody<B> {
    fn hold(mut self, permits: Permits) -> Self {
        if !self.body.is_end_stream() {
            self.permits.0.extend(permits.0);
        }
        self
    }
}

impl<B: Body> Body for PermitBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(context));
        let is_last = match &frame {
            // Nothing follows the trailers, and many bodies know their last frame before they are
            // asked again.
            Some(Ok(frame)) => frame.is_trailers() || this.body.is_end_stream(),
            Some(Err(_)) | None => true,
        };
        if is_last {
            this.permits.free();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A text of the body's own type, as the responses to refused requests have it.
impl<B: From<String>> From<String> for PermitBody<B> {
    fn from(text: String) -> Self {
        Self::new(text.into())
    }
}
