//! The event streams that are open, counted by viewer.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::ActionError;

/// The number of event streams that a named viewer may have at once: a tab has one.
const MAX_OF_A_VIEWER: usize = 8;

/// The number of event streams that all viewers without a name may have at once. They leave room
/// for those with one.
const MAX_OF_THE_UNNAMED: usize = 128;

/// The number of event streams that all viewers together may have at once.
const MAX: usize = 256;

/// The open streams of each viewer whom the hook has named, and those of all others under none.
#[derive(Default)]
pub(super) struct Viewers(Mutex<HashMap<Option<Arc<str>>, usize>>);

/// A stream's entry in the count of open streams, until it is dropped.
pub(super) struct OpenStream {
    viewers: Arc<Viewers>,
    viewer: Option<Arc<str>>,
}

impl Viewers {
    pub(super) fn enter(
        self: &Arc<Self>,
        viewer: Option<Arc<str>>,
    ) -> Result<OpenStream, ActionError> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_this = open.get(&viewer).copied().unwrap_or(0);
        let max_of_this = if viewer.is_some() { MAX_OF_A_VIEWER } else { MAX_OF_THE_UNNAMED };
        if of_this >= max_of_this || open.values().sum::<usize>() >= MAX {
            let why = "too many pages are open; close one";
            return Err(ActionError::unavailable(why));
        }
        open.insert(viewer.clone(), of_this + 1);
        Ok(OpenStream { viewers: Arc::clone(self), viewer })
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = self.viewers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.viewer) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.viewer);
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
        let named = |name: usize| Some(Arc::from(name.to_string()));
        for _ in 0..MAX_OF_THE_UNNAMED {
            streams.push(viewers.enter(None).ok().unwrap());
        }
        assert!(viewers.enter(None).is_err());
        for viewer in 0..(MAX - MAX_OF_THE_UNNAMED) / MAX_OF_A_VIEWER {
            for _ in 0..MAX_OF_A_VIEWER {
                streams.push(viewers.enter(named(viewer)).ok().unwrap());
            }
            assert!(viewers.enter(named(viewer)).is_err());
        }
        assert!(viewers.enter(named(1_000)).is_err());
        drop(streams.pop());
        let stream = viewers.enter(named(1_000));
        assert!(stream.is_ok() && viewers.enter(named(1_001)).is_err());
        drop((streams, stream));
        assert!(viewers.0.lock().unwrap().is_empty());
    }
}
