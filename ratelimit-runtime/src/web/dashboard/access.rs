//! Who may do what, asked for every request; and the header fields of every response.

use std::sync::Arc;

use ::axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderName, HeaderValue, StatusCode, header, request::Parts};

use super::{Dashboard, Failed};

/// What the sender of a request may do with the page.
#[derive(Debug)]
#[non_exhaustive]
pub enum Access {
    /// Nothing: 403.
    Denied,
    /// Nothing, and this is the response: a redirect to a login, or a 401 that asks for one.
    Instead(Response),
    /// See the limits and what they do.
    View,
    /// Also change limits, and look up callers.
    Act,
}

/// Whether the page may show what acts; for the handlers behind [`guard`].
#[derive(Clone, Copy)]
pub(super) struct MayAct(pub(super) bool);

/// The files of the page are all it may load, and nothing may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'self'; form-action 'none'; \
                      frame-ancestors 'none'";

const FIELDS: [(HeaderName, HeaderValue); 6] = [
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
    for (name, value) in FIELDS {
        // The hook's own response may say otherwise.
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}

impl Dashboard {
    /// Returns what the sender may do with the page, or why the request gets no further.
    fn admit(&self, parts: &Parts) -> Result<Access, Failed> {
        self.hosts.check(parts)?;
        let access = (self.authorize)(parts);
        match access {
            Access::Denied => Err(refused("you may not see this page")),
            Access::View if !parts.method.is_safe() => {
                Err(refused("you may look at limits, but not act on them"))
            }
            Access::Act if !parts.method.is_safe() => {
                self.secret.check(parts)?;
                Ok(access)
            }
            access => Ok(access),
        }
    }
}

fn refused(why: &str) -> Failed {
    Failed::new(StatusCode::FORBIDDEN, why)
}
