//! The access of each request's sender, and the headers of each response.

use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue, header, request::Parts};
use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};

use tracing::{Instrument, Span};

use crate::{ActionError, Dashboard, samples::PROCESS};

/// The target of the log of actions, and of the span with their operator.
pub(crate) const TARGET: &str = "ratelimit_dashboard";

/// The access of a request's sender to the page.
#[derive(Debug)]
#[non_exhaustive]
pub enum Access {
    /// None: 403.
    Denied,
    /// None, with this response: a redirect to a login, or a 401.
    Instead(Response),
    /// View limits and their calls.
    View,
    /// View and change limits, and look callers up.
    Act,
}

impl Access {
    /// Returns the access of a viewer whom the hook knows by this name, such as the login of a
    /// staff member.
    ///
    /// Event streams are counted by it, and the log of an action is in a span with it as
    /// `operator`. Changes have it in their [history](ratelimit_runtime::Overrides::history), in
    /// the whole fleet.
    ///
    /// ```
    /// use axum::http::request::Parts;
    /// use ratelimit_dashboard::{Access, NamedAccess};
    ///
    /// #[derive(Clone)]
    /// struct Staff { login: String }
    ///
    /// fn authorize(request: &Parts) -> NamedAccess {
    ///     match request.extensions.get::<Staff>() {
    ///         Some(staff) => Access::Act.named(&*staff.login),
    ///         None => Access::Denied.into(),
    ///     }
    /// }
    /// ```
    pub fn named(self, viewer: impl Into<String>) -> NamedAccess {
        NamedAccess { access: self, viewer: Some(viewer.into().into()) }
    }
}

/// The access of a request's sender, and the sender's name if the hook knows it; made by
/// [`Access::named`], or of an [`Access`] alone.
#[derive(Debug)]
pub struct NamedAccess {
    access: Access,
    viewer: Option<Arc<str>>,
}

impl From<Access> for NamedAccess {
    fn from(access: Access) -> Self {
        Self { access, viewer: None }
    }
}

/// The sender as the hook knows it; set by [`guard`] for the handlers behind it.
#[derive(Clone)]
pub(super) struct Viewer {
    pub(super) name: Option<Arc<str>>,
    pub(super) may_act: bool,
    /// `true` if the sender's page shows another process.
    pub(super) is_elsewhere: bool,
}

/// The header with the process that the sender's page shows.
const PROCESS_HEADER: &str = "x-ratelimit-process";

impl Viewer {
    /// Returns an error if the sender means another process than this one.
    pub(super) fn means_this_process(&self) -> Result<(), ActionError> {
        let why =
            "another process answers than the page shows; try again, or route your session to one";
        if self.is_elsewhere { Err(ActionError::conflict(why)) } else { Ok(()) }
    }
}

/// The page may load its own files only, and nothing may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'self'; form-action 'none'; \
                      frame-ancestors 'none'";

const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

pub(super) async fn guard(
    State(dashboard): State<Arc<Dashboard>>,
    request: Request,
    next: Next,
) -> Response {
    dashboard.start_sampling();
    let (parts, body) = request.into_parts();
    let mut response = match dashboard.admit(&parts) {
        Err(failed) => failed.into_response(),
        Ok(NamedAccess { access: Access::Instead(response), .. }) => response,
        Ok(NamedAccess { access, viewer: name }) => {
            let span = |operator: &Arc<str>| {
                let operator = &**operator;
                tracing::info_span!(target: TARGET, "rate limit page", operator)
            };
            let span = name.as_ref().map_or_else(Span::none, span);
            let mut request = Request::from_parts(parts, body);
            let may_act = matches!(access, Access::Act);
            let process = request.headers().get(PROCESS_HEADER);
            let is_elsewhere = process.is_some_and(|it| it.as_bytes() != PROCESS.as_bytes());
            request.extensions_mut().insert(Viewer { name, may_act, is_elsewhere });
            next.run(request).instrument(span).await
        }
    };
    for (name, value) in HEADERS {
        // Headers of the hook's own response win.
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}

impl Dashboard {
    /// Returns the sender's access, or the error of a request that is not served.
    fn admit(&self, parts: &Parts) -> Result<NamedAccess, ActionError> {
        self.hosts.check(parts)?;
        let named = (self.authorize)(parts);
        match named.access {
            Access::Denied => Err(ActionError::forbidden("you may not see this page")),
            Access::View if !parts.method.is_safe() => {
                Err(ActionError::forbidden("you may view limits, but not act on them"))
            }
            Access::Act if !parts.method.is_safe() => {
                self.secret.check(parts)?;
                Ok(named)
            }
            _ => Ok(named),
        }
    }
}
