//! The events that keep a page up to date.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use ::axum::{
    extract::State,
    http::HeaderMap,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_core::Stream;
use http::StatusCode;
use once_cell::sync::Lazy;
use tokio::{sync::mpsc, time::Instant};

use super::{Dashboard, Failed, token, viewers::Place};

/// After this long the page asks anew: a server that shuts down waits no longer for it, and whoever
/// may no longer see it is turned away.
const LIFETIME: Duration = Duration::from_secs(10);

/// How soon the page asks anew.
const PAUSE: Duration = Duration::from_millis(200);

/// Sample numbers of another process mean nothing here.
static PROCESS: Lazy<String> = Lazy::new(|| format!("{:016x}", fastrand::u64(..)));

pub(super) async fn events(
    State(dashboard): State<Arc<Dashboard>>,
    headers: HeaderMap,
) -> Result<Response, Failed> {
    let Some(session) = token::session(&headers) else {
        return Err(Failed::new(StatusCode::FORBIDDEN, "events are for the page; load it first"));
    };
    let place = dashboard.viewers.enter(session)?;
    // Few, so that a page which does not read holds up only itself.
    let (sender, receiver) = mpsc::channel(4);
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(number);
    tokio::spawn(feed(dashboard, last, sender, place));
    let events = Sse::new(Events(receiver)).keep_alive(KeepAlive::new());
    // Proxies that collect responses before they pass them on are told not to.
    Ok(([("x-accel-buffering", "no")], events).into_response())
}

/// Sends what is new until the page is gone or the time is over.
async fn feed(
    dashboard: Arc<Dashboard>,
    mut last: Option<u64>,
    sender: mpsc::Sender<Event>,
    _place: Place,
) {
    let end = Instant::now() + LIFETIME;
    let mut latest = dashboard.samples.subscribe();
    let mut told = String::new();
    loop {
        latest.mark_unchanged();
        let mut events = Vec::new();
        let view = serde_json::to_string(&dashboard.view()).unwrap_or_default();
        if view != told {
            events.push(Event::default().event("limits").retry(PAUSE).data(&view));
            told = view;
        }
        let samples = dashboard.samples.from(last.map_or(0, |last| last.saturating_add(1)));
        // Of a page that was away for too long, the gap stays empty.
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

/// The number of the sample that the page has seen last, if this process has taken it.
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
