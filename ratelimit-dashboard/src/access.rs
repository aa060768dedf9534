//! The access of each request's sender, and the headers of each response.

use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue, StatusCode, header, request::Parts};
use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{ActionError, Dashboard};

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

/// `true` if the sender may act; set by [`guard`] for the handlers behind it.
#[derive(Clone, Copy)]
pub(super) struct MayAct(pub(super) bool);

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
        Ok(Access::Instead(response)) => response,
        Ok(access) => {
            let mut request = Request::from_parts(parts, body);
            request.extensions_mut().insert(MayAct(matches!(access, Access::Act)));
            next.run(request).await
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
    fn admit(&self, parts: &Parts) -> Result<Access, ActionError> {
        self.hosts.check(parts)?;
        let access = (self.authorize)(parts);
        match access {
            Access::Denied => Err(refused("you may not see this page")),
            Access::View if !parts.method.is_safe() => {
                Err(refused("you may view limits, but not act on them"))
            }
            Access::Act if !parts.method.is_safe() => {
                self.secret.check(parts)?;
                Ok(access)
            }
            access => Ok(access),
        }
    }
}

fn refused(why: &str) -> ActionError {
    ActionError::new(StatusCode::FORBIDDEN, why)
}
