//! The event streams that are open, counted by viewer.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use http::StatusCode;

use super::Failed;

/// The most event streams of one viewer at once: a tab has one.
const MOST_OF_A_VIEWER: usize = 8;

/// The most event streams at once, of all viewers.
const MOST: usize = 256;

/// The open streams of each session.
#[derive(Default)]
pub(super) struct Viewers(Mutex<HashMap<Box<str>, usize>>);

/// A place that a stream takes until this is dropped.
pub(super) struct Place {
    viewers: Arc<Viewers>,
    session: Box<str>,
}

impl Viewers {
    pub(super) fn enter(self: &Arc<Self>, session: &str) -> Result<Place, Failed> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_this = open.get(session).copied().unwrap_or(0);
        if of_this >= MOST_OF_A_VIEWER || open.values().sum::<usize>() >= MOST {
            let why = "as many pages are open as there may be; close one";
            return Err(Failed::new(StatusCode::SERVICE_UNAVAILABLE, why));
        }
        open.insert(session.into(), of_this + 1);
        Ok(Place { viewers: Arc::clone(self), session: session.into() })
    }
}

impl Drop for Place {
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
    fn a_viewer_has_some_places_and_all_have_no_more_than_there_are() {
        let viewers = Arc::new(Viewers::default());
        let mut places = Vec::new();
        for viewer in 0..MOST / MOST_OF_A_VIEWER {
            for _ in 0..MOST_OF_A_VIEWER {
                places.push(viewers.enter(&viewer.to_string()).ok().unwrap());
            }
            assert!(viewers.enter(&viewer.to_string()).is_err());
        }
        assert!(viewers.enter("one more").is_err());
        drop(places.pop());
        let place = viewers.enter("one more");
        assert!(place.is_ok() && viewers.enter("another").is_err());
        drop((places, place));
        assert!(viewers.0.lock().unwrap().is_empty());
    }
}
