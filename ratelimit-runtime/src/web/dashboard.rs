//! A page for operators, to mount in an axum router: every limit of the service, what it does right
//! now, and how to change it without a deploy.
//!
//! - All limits, those of annotated functions and those that are called otherwise, with their
//!   numbers as written and as they hold now, and plots of the last minutes: calls admitted,
//!   refused, refused by what this process remembers, let through by a dry run, decided without
//!   the store, and not decided at all; and the smallest share that was left to any caller.
//! - A limit is switched to a dry run or off, or gets other numbers; so are all limits at once. Where
//!   the limiter [follows](crate::Overrides::follow_redis) the overrides on Redis this is written there
//!   and holds in the whole fleet, else it holds in this process. The page says which.
//! - One caller of one limit is looked up and reset. No caller is shown who was not asked for.
//! - All algorithms side by side, to try out, on counts of the page's own.
//!
//! ```no_run
//! use axum::{Router, http::request::Parts};
//! use ratelimit_runtime::{Limiter, web::dashboard::{self, Access}};
//!
//! /// Whom a layer further out has found the request to come from.
//! #[derive(Clone)]
//! struct Staff { is_on_call: bool }
//!
//! fn authorize(request: &Parts) -> Access {
//!     match request.extensions.get::<Staff>() {
//!         Some(staff) if staff.is_on_call => Access::Act,
//!         Some(_) => Access::View,
//!         None => Access::Denied,
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::from_env().await?;
//! ratelimit_runtime::install(limiter.clone())?;
//! let app = Router::<()>::new()
//!     .nest_service("/ops/limits", dashboard::router(limiter, authorize));
//! # Ok(())
//! # }
//! ```
//!
//! With `nest_service` the page is at `/ops/limits` and at `/ops/limits/`; with `nest` axum answers
//! only the former. It can also be the router of a port of its own. All of its URLs are relative.
//! `cargo run -p examples-axum --example dashboard` shows it with traffic.
//!
//! # Where it is served
//!
//! Under IP addresses and the names of this machine (`localhost`), and under other names once they are
//! named: a site that has its own name lead here (DNS rebinding) is refused with 421.
//!
//! ```no_run
//! # use axum::{Router, http::request::Parts};
//! # use ratelimit_runtime::{Limiter, web::dashboard::{self, Access}};
//! # fn authorize(_: &Parts) -> Access { Access::Denied }
//! # fn router(limiter: Limiter) -> Router {
//! dashboard::builder(limiter, authorize).hosts(["ops.example.org"]).router()
//! # }
//! ```
//!
//! Behind a proxy that changes `Host`, name both: the one it sends, and the one in the browser.
//!
//! # Who may see it
//!
//! There is no page without a hook that says, for each request, what its sender may do: nothing,
//! look, or act; scripts, styles and the stream of events included. What has to be awaited to know
//! that, such as a session, belongs in a layer further out, which leaves what it has found in the
//! request's extensions. An event stream ends after some seconds and is asked for anew, so that a
//! right that is taken away is gone by then.
//!
//! # What it protects against
//!
//! - Requests that another site has a browser send: `Host` is a name that is served, and `Origin`,
//!   where it is sent, is the page's. An action is a `POST` of JSON, `Sec-Fetch-Callsite` does not speak
//!   against it, and it has the page's token: an HMAC of the session, which is random and in a cookie
//!   (`SameSite=Strict`, `HttpOnly`), under a secret of the process. Replicas behind a balancer accept
//!   each other's tokens if they are given the same [`secret`](DashboardBuilder::secret).
//! - Scripts: the `Content-Security-Policy` allows the page's own files and nothing inline, and
//!   names of limits and texts of errors are only ever put into the page as text. It cannot be
//!   framed, and loads nothing from anywhere else.
//! - A caller that is looked up is sent in a body, never in a URL, and is neither logged nor
//!   answered. Actions are logged at `info` with the limit and what was done; a span that a layer
//!   further out has entered adds who did it.
//! - Memory and connections: the history is that of five minutes, bodies are of at most 16 KiB, a
//!   viewer has at most 8 event streams and all have at most 256, and what is tried out is counted for
//!   at most 256 keys.
//!
//! TLS is the service's affair; the cookie is `Secure` when the request says that it came by https,
//! itself or by `X-Forwarded-Proto` or `Forwarded`.
//!
//! # What it shows
//!
//! One process: behind a balancer each replica has a page of its own, which names the process; send
//! a session's requests to the same one to follow it. Calls are counted for the page from the
//! moment the router is made, by limits' names, of all limiters of the process; each decision then
//! takes a lock of its limit's for a moment.
//!
//! A graceful shutdown waits for open event streams as for any response: at most ten seconds.

mod access;
mod actions;
mod callers;
mod hosts;
mod limits;
mod page;
mod samples;
mod stream;
mod token;
mod trial;
mod viewers;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::axum::{
    Router,
    extract::DefaultBodyLimit,
    http::{StatusCode, request::Parts},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use tokio::sync::Mutex;

pub use self::access::Access;
use self::{hosts::Hosts, samples::Samples, token::Secret, trial::Trial, viewers::Viewers};
use crate::{limiter::Limiter, telemetry::stats};

/// The largest body of an action.
const MOST_BYTES: usize = 16 * 1024;

/// How far apart samples are.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// The page for the limits of `limiter`, for those whom `authorize` lets in: the
/// [`builder`]'s with nothing set.
pub fn router<A>(limiter: Limiter, authorize: A) -> Router
where
    A: Fn(&Parts) -> Access + Send + Sync + 'static,
{
    builder(limiter, authorize).router()
}

/// Settings of the page for the limits of `limiter`, for those whom `authorize` lets in.
///
/// `authorize` is asked for every request to a served host, before anything else is checked.
pub fn builder<A>(limiter: Limiter, authorize: A) -> DashboardBuilder
where
    A: Fn(&Parts) -> Access + Send + Sync + 'static,
{
    DashboardBuilder {
        limiter,
        authorize: Box::new(authorize),
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

type Hook = Box<dyn Fn(&Parts) -> Access + Send + Sync>;

impl DashboardBuilder {
    /// Serves the page under these host names as well, without ports. IP addresses, `localhost` and
    /// names that end in `.localhost` are always served.
    pub fn hosts(mut self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.hosts.add(names);
        self
    }

    /// Makes the tokens of actions with this secret, so that all processes with the same one accept
    /// them. By default each process has a random one. Take at least 32 random characters.
    pub fn secret(mut self, secret: impl AsRef<str>) -> Self {
        self.secret = Secret::shared(secret.as_ref());
        self
    }

    /// The page.
    ///
    /// Calls are counted for it from now on; the samples are taken by a task that ends when the router
    /// and its clones are gone. Outside a tokio runtime it starts with the first request.
    pub fn router(self) -> Router {
        let Self { limiter, authorize, hosts, secret } = self;
        stats::enable();
        let dashboard = Arc::new(Dashboard {
            limiter,
            authorize,
            hosts,
            secret,
            samples: Samples::default(),
            viewers: Arc::default(),
            acting: Mutex::new(()),
            trial: Trial::default(),
            is_sampling: AtomicBool::new(false),
        });
        if tokio::runtime::Handle::try_current().is_ok() {
            dashboard.start_sampling();
        }
        page::routes()
            .route("/events", get(stream::events))
            .route("/enforcement", post(actions::enforce))
            .route("/numbers", post(actions::renumber))
            .route("/override", post(actions::take_back))
            .route("/all", post(actions::enforce_all))
            .route("/caller", post(callers::look_up))
            .route("/reset", post(callers::reset))
            .route("/trial", post(trial::call))
            .layer(DefaultBodyLimit::max(MOST_BYTES))
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

/// What all requests share.
struct Dashboard {
    limiter: Limiter,
    authorize: Hook,
    hosts: Hosts,
    secret: Secret,
    samples: Samples,
    viewers: Arc<Viewers>,
    /// An override is read, changed and written by one request at a time.
    acting: Mutex<()>,
    trial: Trial,
    is_sampling: AtomicBool,
}

impl Dashboard {
    fn start_sampling(self: &Arc<Self>) {
        if self.is_sampling.swap(true, Ordering::Relaxed) {
            return;
        }
        let dashboard = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut clock = tokio::time::interval(SAMPLE_EVERY);
            clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                clock.tick().await;
                let Some(dashboard) = dashboard.upgrade() else { return };
                dashboard.samples.take(dashboard.limiter.overrides());
            }
        });
    }
}

/// Why an action was not done, in words for who asked for it.
struct Failed(StatusCode, String);

impl Failed {
    fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self(status, why.into())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let Self(status, error) = self;
        (status, json(&serde_json::json!({ "error": error }))).into_response()
    }
}

fn json(value: &impl serde::Serialize) -> Response {
    // What is serialized here has only texts for its maps' keys, and so cannot fail.
    let text = serde_json::to_string(value).unwrap_or_default();
    ([("content-type", "application/json")], text).into_response()
}
