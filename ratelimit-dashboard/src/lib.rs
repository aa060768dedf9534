#![doc = include_str!("../README.md")]
//!
//! # Where it is served
//!
//! With `nest_service` the page is at `/ops/limits` and at `/ops/limits/`; with `nest` axum answers
//! only the former. It can also be the router of a port of its own. All of its URLs are relative.
//!
//! It is served under IP addresses and the names of this machine (`localhost`), and under further
//! names once they are set. A request under another name is refused with 421: another site could
//! point its own name here (DNS rebinding).
//!
//! ```no_run
//! # use axum::{Router, http::request::Parts};
//! # use ratelimit_dashboard::Access;
//! # use ratelimit_runtime::Limiter;
//! # fn authorize(_: &Parts) -> Access { Access::Denied }
//! # fn router(limiter: Limiter) -> Router {
//! ratelimit_dashboard::builder(limiter, authorize).hosts(["ops.example.org"]).router()
//! # }
//! ```
//!
//! Behind a proxy that changes `Host`, set both: the name that it sends, and the one in the
//! browser.
//!
//! # Who may see it
//!
//! There is no page without a hook that decides for each request: nothing, view, or act. That
//! includes scripts, styles and the event stream. A hook cannot await. Look a session up in a layer
//! further out, and leave the result in the request's extensions. An event stream ends after ten
//! seconds and is requested anew, so that a right that was withdrawn is gone by then.
//!
//! # Where an action takes effect
//!
//! In this process or in the whole fleet, as the operator chooses. The fleet are all processes that
//! [follow](ratelimit_runtime::Overrides::follow_redis) the overrides on Redis; an action on it is
//! confirmed first. In this process an operator's override comes
//! [before](ratelimit_runtime::overrides::OverrideSource::Operator) Redis. So it also works while
//! Redis is dead. It stays until its end, until it is removed, or until the same override is
//! changed for the fleet.
//!
//! While Redis cannot be used, the page asks before it acts on this process in place of the fleet.
//! It returns to the fleet once Redis answers.
//!
//! An override has one begin and one end. An action that would give another operator's part of it
//! new ones asks first. Overrides that begin later are listed before. An override of several
//! windows is written elsewhere, and can be removed. A form of numbers follows what holds until
//! somebody writes in it, and says what has changed since before it replaces that.
//!
//! The page lists the last changes and resets with their operators. The latest change of each
//! override can be undone. It also lists overrides that change no limit: rejected and misspelt
//! ones, and those that Redis has lost.
//!
//! # What it protects against
//!
//! - Requests that another site makes a browser send: `Host` is a name that is served, and
//!   `Origin`, if it is sent, is the page's. An action is a `POST` of JSON, its `Sec-Fetch-Site`,
//!   if any, is `same-origin`, and it carries the page's token. The token is an HMAC of the session
//!   under a secret of the process. The session is random and in a cookie (`SameSite=Strict`,
//!   `HttpOnly`). Replicas behind a balancer accept each other's tokens if they share a
//!   [`secret`](DashboardBuilder::secret).
//! - Scripts: the `Content-Security-Policy` allows the page's own files and nothing inline. Names
//!   of limits and texts of errors enter the page as text only. It cannot be framed, and loads
//!   nothing from anywhere else.
//! - Leaks of callers: a caller that is looked up is sent in a body, never in a URL, and is neither
//!   logged nor part of an answer. Only callers with an override of their own are listed, to those
//!   who may act. Actions are logged at `info` with the target `ratelimit_dashboard`, the limit and
//!   the action, in a span with the `operator` whom the hook [names](Access::named).
//! - Exhaustion: the history is that of five minutes, and a body has at most 16 KiB. A viewer whom
//!   the hook [names](Access::named) has at most 8 event streams, all without a name together 128,
//!   and all together 256. Nothing that a client chooses is counted by.
//!
//! TLS is up to the service. The cookie is `Secure` if the request came by https: by its own URI,
//! `X-Forwarded-Proto` or `Forwarded`.
//!
//! # What it shows
//!
//! One process, or sums of the [fleet](ratelimit_runtime::Limiter::fleet), as the viewer chooses.
//! Behind a balancer each replica has a page of its own, which names the process; route a session
//! to one replica to follow it. An action on one process that reaches another is refused with 409.
//! The plots mark the start of the process, with its
//! [version](ratelimit_runtime::LimiterBuilder::version), and changes of overrides. Calls are
//! counted from the moment the router is made, by the limits' names, for all limiters of the
//! process.
//!
//! A graceful shutdown waits for open event streams as for any response: at most ten seconds.

mod access;
mod acting;
mod actions;
mod callers;
mod effect;
mod error;
mod exceptions;
mod fleet;
mod history;
mod hosts;
mod limits;
mod page;
mod refused;
mod samples;
mod scope;
mod stream;
mod token;
mod viewers;

use std::{
    fmt,
    sync::{self, Arc, PoisonError},
    time::{Duration, SystemTime},
};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    http::request::Parts,
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use ratelimit_runtime::{Limiter, fleet::FleetStatus};
use serde_json::Value;
use tokio::{sync::Mutex, task::JoinHandle, time::Instant};

pub use self::access::{Access, NamedAccess};
use self::{
    error::ActionError, history::Resets, hosts::Hosts, samples::Samples, token::Secret,
    viewers::Viewers,
};

/// The largest body of an action, in bytes.
const MAX_BODY: usize = 16 * 1024;

/// The time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the page for the limits of `limiter`: that of the [`builder`] with its defaults.
pub fn router<A, R>(limiter: Limiter, authorize: A) -> Router
where
    A: Fn(&Parts) -> R + Send + Sync + 'static,
    R: Into<NamedAccess>,
{
    builder(limiter, authorize).router()
}

/// Returns the settings of the page for the limits of `limiter`.
///
/// `authorize` is called for every request to a served host, before anything else is checked.
pub fn builder<A, R>(limiter: Limiter, authorize: A) -> DashboardBuilder
where
    A: Fn(&Parts) -> R + Send + Sync + 'static,
    R: Into<NamedAccess>,
{
    DashboardBuilder {
        limiter,
        authorize: Box::new(move |parts| authorize(parts).into()),
        hosts: Hosts::default(),
        secret: Secret::default(),
    }
}

/// Settings of the page; made by [`builder`].
#[must_use = "a builder does nothing until `router` makes the page"]
pub struct DashboardBuilder {
    limiter: Limiter,
    authorize: Hook,
    hosts: Hosts,
    secret: Secret,
}

type Hook = Box<dyn Fn(&Parts) -> NamedAccess + Send + Sync>;

impl DashboardBuilder {
    /// Serves the page under these host names as well, without ports. IP addresses, `localhost` and
    /// names that end in `.localhost` are always served.
    pub fn hosts(mut self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.hosts.add(names);
        self
    }

    /// Sets the secret of the tokens of actions; processes with the same secret accept each other's
    /// tokens. By default each process has a random one. Take at least 32 random characters.
    pub fn secret(mut self, secret: impl AsRef<str>) -> Self {
        self.secret = Secret::shared(secret.as_ref());
        self
    }

    /// Returns the page, and starts counting calls.
    ///
    /// A task takes a sample each second. It ends when the last clone of the router is dropped.
    /// Outside a tokio runtime it starts with the first request, and again if its runtime has
    /// ended.
    pub fn router(self) -> Router {
        let Self { limiter, authorize, hosts, secret } = self;
        let dashboard = Arc::new(Dashboard {
            limiter,
            authorize,
            hosts,
            secret,
            samples: Samples::default(),
            viewers: Arc::default(),
            acting: Mutex::new(()),
            resets: Resets::default(),
            fleet: Mutex::default(),
            started: SystemTime::now(),
            sampling: sync::Mutex::default(),
        });
        if tokio::runtime::Handle::try_current().is_ok() {
            dashboard.start_sampling();
        }
        page::routes()
            .route("/events", get(stream::events))
            .route("/enforcement", post(actions::set_enforcement))
            .route("/numbers", post(actions::set_limits))
            .route("/candidate", post(actions::set_candidate))
            .route("/apply-candidate", post(actions::apply_candidate))
            .route("/override", post(actions::clear_override))
            .route("/field", post(actions::set_field))
            .route("/undo", post(history::undo))
            .route("/exception", post(exceptions::set))
            .route("/end-exception", post(exceptions::end))
            .route("/exceptions", post(exceptions::list))
            .route("/refused", post(refused::list))
            .route("/fleet", get(fleet::status))
            .route("/caller", post(callers::look_up))
            .route("/reset", post(callers::reset))
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .layer(middleware::from_fn_with_state(Arc::clone(&dashboard), access::guard))
            .with_state(dashboard)
    }
}

/// Shows neither the hook nor the secret.
impl fmt::Debug for DashboardBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DashboardBuilder")
            .field("limiter", &self.limiter)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

/// The state that all requests share.
struct Dashboard {
    limiter: Limiter,
    authorize: Hook,
    hosts: Hosts,
    secret: Secret,
    samples: Samples,
    viewers: Arc<Viewers>,
    /// Held while an action reads, changes and writes an override.
    acting: Mutex<()>,
    resets: Resets,
    /// The latest status of the fleet, and when it was read.
    fleet: Mutex<Option<(Arc<FleetStatus>, Instant)>>,
    /// The time from which calls are counted.
    started: SystemTime,
    /// The task that takes the samples.
    sampling: sync::Mutex<Option<JoinHandle<()>>>,
}

impl Dashboard {
    fn start_sampling(self: &Arc<Self>) {
        let mut sampling = self.sampling.lock().unwrap_or_else(PoisonError::into_inner);
        if sampling.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let dashboard = Arc::downgrade(self);
        *sampling = Some(tokio::spawn(async move {
            let mut clock = tokio::time::interval(SAMPLE_INTERVAL);
            clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                clock.tick().await;
                let Some(dashboard) = dashboard.upgrade() else { return };
                dashboard.samples.record();
            }
        }));
    }
}

/// The response to a request that acts.
type Answer = Result<Response, ActionError>;

fn reply(value: &Value) -> Response {
    ([("content-type", "application/json")], value.to_string()).into_response()
}
