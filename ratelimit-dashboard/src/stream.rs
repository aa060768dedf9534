//! The event stream that keeps a page up to date.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Extension,
    extract::State,
    http::HeaderMap,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_core::Stream;
use tokio::{sync::mpsc, time::Instant};

use crate::{ActionError, Dashboard, access::Viewer, samples::PROCESS, token, viewers::OpenStream};

/// The lifetime of a stream, after which the page requests another one. A server that shuts down
/// waits no longer than that, and a withdrawn right ends by then.
const LIFETIME: Duration = Duration::from_secs(10);

/// The pause before the page requests the next stream.
const RETRY: Duration = Duration::from_millis(200);

pub(super) async fn events(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(viewer): Extension<Viewer>,
    headers: HeaderMap,
) -> Result<Response, ActionError> {
    if token::session(&headers).is_none() {
        return Err(ActionError::forbidden("events are for the page; load it first"));
    }
    let open = dashboard.viewers.enter(viewer.name)?;
    // A small buffer, so that a page that does not read delays only itself.
    let (sender, receiver) = mpsc::channel(4);
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(number);
    tokio::spawn(feed(dashboard, last, sender, open));
    let events = Sse::new(Events(receiver)).keep_alive(KeepAlive::new());
    // Asks proxies not to buffer the response.
    Ok(([("x-accel-buffering", "no")], events).into_response())
}

/// Sends changes until the page is gone or the lifetime is over.
async fn feed(
    dashboard: Arc<Dashboard>,
    mut last: Option<u64>,
    sender: mpsc::Sender<Event>,
    _open: OpenStream,
) {
    let end = Instant::now() + LIFETIME;
    let mut latest = dashboard.samples.subscribe();
    let mut sent = [String::new(), String::new()];
    loop {
        latest.mark_unchanged();
        let mut events = Vec::new();
        let (view, counts) = (dashboard.view().to_string(), dashboard.counts().to_string());
        for (sent, (name, now)) in sent.iter_mut().zip([("limits", view), ("counts", counts)]) {
            if now != *sent {
                events.push(Event::default().event(name).retry(RETRY).data(&now));
                *sent = now;
            }
        }
        let samples = dashboard.samples.from(last.map_or(0, |last| last.saturating_add(1)));
        // A page that was away for too long gets no samples for the gap.
        let kind = if last.is_none() { "history" } else { "samples" };
        if last.is_none() || !samples.is_empty() {
            last = Some(samples.last().map_or(last.unwrap_or(0), |sample| sample.number));
            let samples: Vec<_> = samples.iter().map(Arc::as_ref).collect();
            let samples = serde_json::to_string(&samples).unwrap_or_default();
            let id = format!("{}-{}", *PROCESS, last.unwrap_or(0));
            events.push(Event::default().event(kind).id(id).data(samples));
        }
        for event in events {
            if !matches!(tokio::time::timeout_at(end, sender.send(event)).await, Ok(Ok(()))) {
                return;
            }
        }
        if !matches!(tokio::time::timeout_at(end, latest.changed()).await, Ok(Ok(()))) {
            return;
        }
    }
}

/// Returns the number of the latest sample that the page has, if it is of this process.
fn number(id: &str) -> Option<u64> {
    let (process, number) = id.split_once('-')?;
    number.parse().ok().filter(|_| process == *PROCESS)
}

struct Events(mpsc::Receiver<Event>);

impl Stream for Events {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|event| event.map(Ok))
    }
}
