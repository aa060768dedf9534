//! The event streams that are open, counted by viewer.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::http::StatusCode;

use crate::ActionError;

/// The number of event streams that a viewer may have at once: a tab has one.
const MAX_OF_A_VIEWER: usize = 8;

/// The number of event streams that all viewers together may have at once.
const MAX: usize = 256;

/// The open streams of each session.
#[derive(Default)]
pub(super) struct Viewers(Mutex<HashMap<Box<str>, usize>>);

/// A stream's entry in the count of open streams, until it is dropped.
pub(super) struct OpenStream {
    viewers: Arc<Viewers>,
    session: Box<str>,
}

impl Viewers {
    pub(super) fn enter(self: &Arc<Self>, session: &str) -> Result<OpenStream, ActionError> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_this = open.get(session).copied().unwrap_or(0);
        if of_this >= MAX_OF_A_VIEWER || open.values().sum::<usize>() >= MAX {
            let why = "too many pages are open; close one";
            return Err(ActionError::new(StatusCode::SERVICE_UNAVAILABLE, why));
        }
        open.insert(session.into(), of_this + 1);
        Ok(OpenStream { viewers: Arc::clone(self), session: session.into() })
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = self.viewers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.session) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_viewer_has_some_streams_and_all_have_no_more_than_there_are() {
        let viewers = Arc::new(Viewers::default());
        let mut streams = Vec::new();
        for viewer in 0..MAX / MAX_OF_A_VIEWER {
            for _ in 0..MAX_OF_A_VIEWER {
                streams.push(viewers.enter(&viewer.to_string()).ok().unwrap());
            }
            assert!(viewers.enter(&viewer.to_string()).is_err());
        }
        assert!(viewers.enter("one more").is_err());
        drop(streams.pop());
        let stream = viewers.enter("one more");
        assert!(stream.is_ok() && viewers.enter("another").is_err());
        drop((streams, stream));
        assert!(viewers.0.lock().unwrap().is_empty());
    }
}
