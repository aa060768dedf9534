//! A stand-in for a remote service: it refuses some calls, and all that come within the pause that it asks for then.

use std::{
    error::Error,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::Path,
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;

/// A call that has reached the service.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) at: Instant,
    /// `true` if its answer is 429.
    pub(super) is_refused: bool,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.is_refused { f.write_str(" (429)") } else { Ok(()) }
    }
}

/// The service, which logs its calls.
pub(super) struct Remote {
    /// The numbers of the calls after which it asks for a pause.
    full_at: &'static [usize],
    pub(super) pause: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    paused_until: Option<Instant>,
}

impl Remote {
    /// Starts the service. Returns its URL too.
    pub(super) async fn start(
        full_at: &'static [usize],
        pause: Duration,
    ) -> Result<(String, Arc<Self>), Box<dyn Error>> {
        let remote = Arc::new(Self { full_at, pause, state: Mutex::default() });
        let called = Arc::clone(&remote);
        let answer = move |Path(name): Path<String>| std::future::ready(called.answer(name));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = Router::new().route("/{name}", get(answer));
        tokio::spawn(axum::serve(listener, router).into_future());
        Ok((url, remote))
    }

    fn answer(&self, name: String) -> Response {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let at = Instant::now();
        if self.full_at.contains(&(state.calls.len() + 1)) {
            state.paused_until = Some(at + self.pause);
        }
        let left =
            state.paused_until.map(|it| it.saturating_duration_since(at)).unwrap_or_default();
        let is_refused = !left.is_zero();
        state.calls.push(Call { name, at, is_refused });
        if is_refused {
            let seconds = left.as_secs_f64().ceil().to_string();
            return (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, seconds)]).into_response();
        }
        "sunny\n".into_response()
    }

    /// Returns the calls so far.
    pub(super) fn calls(&self) -> Vec<Call> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).calls.clone()
    }
}
