//! The permits of a request, and a response's body that holds them.

use std::{fmt, sync::Arc};

use pin_project_lite::pin_project;

use crate::decision::{Decision, Permit};

/// The permits of a request. It is in flight until they are dropped.
#[derive(Default)]
#[allow(unnameable_types, unreachable_pub, reason = "only the layers make them")]
pub struct Permits(pub(super) Vec<Arc<dyn Permit>>);

impl Permits {
    pub(super) fn of(decisions: impl IntoIterator<Item = Decision>) -> Self {
        Self(decisions.into_iter().filter_map(Decision::into_permit).collect())
    }

    /// Frees the permits.
    pub(super) fn free(&mut self) {
        self.0 = Vec::new();
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permits").field(&self.0.len()).finish()
    }
}

pin_project! {
    /// The body of a response that holds the permits of its request: until the body has ended, has
    /// failed, or is dropped, as when the client goes away.
    ///
    /// Permits of a body whose last frame is known as such are free before the client can receive
    /// it.
    #[derive(Debug, Default)]
    pub struct PermitBody<B> {
        #[pin]
        pub(super) body: B,
        pub(super) permits: Permits,
    }
}

impl<B> PermitBody<B> {
    /// Wraps a body, so that a layer can add the permits of its request.
    #[must_use]
    pub fn new(body: B) -> Self {
        Self { body, permits: Permits::default() }
    }
}
