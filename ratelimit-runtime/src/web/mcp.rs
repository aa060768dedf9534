//! A refusal as an error of an MCP server, and the caller of a request.
//!
//! With this feature [`RateLimitError`] converts into rmcp's [`ErrorData`], so that functions with
//! `#[tool]` and `#[prompt]` can be annotated, above or below that attribute. Tools may also return
//! a `CallToolResult`, or a `Result` with the error `RateLimitError`.
//!
//! ```
//! use ratelimit_runtime::{rate_limit, web::mcp};
//! use rmcp::{ErrorData, RoleServer, service::RequestContext};
//!
//! struct Library;
//!
//! // Inside an `impl` with `#[rmcp::tool_router]` it also has `#[tool]`.
//! impl Library {
//!     #[rate_limit(period = "1m", threshold = 20, key = mcp::caller(&context))]
//!     async fn search(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
//!         Ok("three books".to_owned())
//!     }
//! }
//! ```
//!
//! rmcp runs tools and prompts in tasks of their own. The ambient caller is not set there, and no
//! header field of the HTTP response lists their limits. A call is in flight until its function has
//! ended.
//!
//! `examples/mcp` is a whole server, on stdio and on HTTP.

use std::sync::{LazyLock, Once};

use http::{Request, request::Parts};
use rmcp::{
    ErrorData, RoleServer,
    handler::server::tool::IntoCallToolResult,
    model::{CallToolResponse, CallToolResult, ContentBlock, ErrorCode, JsonObject},
    service::RequestContext,
};

use super::{Refusal, wait::Wait};
use crate::{caller::Caller, error::RateLimitError, rejection::are_outputs, request::next_id};

/// The caller that an identity layer has found, in the extensions of a request.
#[derive(Clone)]
struct FoundCaller(Caller);

/// Returns a request with the caller that an identity layer has found: the ambient one does not
/// reach a tool.
pub(super) fn with_caller<B>(mut request: Request<B>, caller: &Caller) -> Request<B> {
    request.extensions_mut().insert(FoundCaller(caller.clone()));
    request
}

/// Returns the caller of a request, for the `key` of a tool or prompt.
///
/// - Over HTTP it is the one that the [`IdentityLayer`](super::tower::IdentityLayer) in front has
///   found. Without that layer all requests share one caller, and a warning is logged.
/// - Over any other transport it is the session of this process, as on stdio. A process that serves
///   several connections without HTTP makes a caller of its own for each.
///
/// `Mcp-Session-Id` is no caller: it has been removed from revision 2026-07-28 of the protocol, and
/// a server does not check it there. Nor is a number in the server's struct, of which rmcp makes
/// one for each request.
pub fn caller(context: &RequestContext<RoleServer>) -> Caller {
    static SESSION: LazyLock<Caller> =
        LazyLock::new(|| Caller::fallback(Caller::from("session").and(next_id())));
    static WARNED: Once = Once::new();
    let Some(request) = context.extensions.get::<Parts>() else { return SESSION.clone() };
    if let Some(FoundCaller(caller)) = request.extensions.get() {
        return caller.clone();
    }
    WARNED.call_once(|| {
        tracing::warn!(
            "an MCP request without an identity is counted for the caller that all such requests share; put a \
             `web::tower::IdentityLayer` in front of the service"
        );
    });
    Caller::shared()
}

/// The code is the HTTP status of the [`Refusal`], such as 429. The message also says what a model
/// is to do. The data are those of SEP-3304:
///
/// - `retryAfterMs` is the wait, rounded up and at least 1, if the error has one,
/// - `limit` is the full quota, or the calls that may be in flight; of other errors there is none,
/// - `remaining` are the units that are left, fewer than the call's cost; 0 for calls in flight.
impl From<RateLimitError> for ErrorData {
    fn from(error: RateLimitError) -> Self {
        let numbers = match &error {
            RateLimitError::Exceeded(it) => Some((it.quota(), it.remaining())),
            RateLimitError::Busy(it) => Some((it.max_concurrency(), 0)),
            _ => None,
        };
        let mut data = JsonObject::new();
        if let Some(wait) = Wait::of(&error) {
            data.insert("retryAfterMs".to_owned(), wait.millis().into());
        }
        if let Some((limit, remaining)) = numbers {
            data.insert("limit".to_owned(), limit.into());
            data.insert("remaining".to_owned(), remaining.into());
        }
        let message = message(&error);
        let code = ErrorCode(Refusal::from(error).status().into());
        Self::new(code, message, (!data.is_empty()).then(|| data.into()))
    }
}

/// Returns the error's text, and what a model is to do.
fn message(error: &RateLimitError) -> String {
    match (error, Wait::of(error).map(Wait::whole_seconds)) {
        (_, Some(wait)) => format!("{error}; wait {wait} s, then repeat this call"),
        (RateLimitError::Busy(_), None) => {
            format!("{error}; repeat this call once an earlier one has ended")
        }
        (RateLimitError::TooLarge(_), None) => format!("{error}; ask for less in one call"),
        (_, None) => format!("{error}; do not repeat this call"),
    }
}

/// An error of the tool, which the model reads: the message of the [`ErrorData`].
impl From<RateLimitError> for CallToolResult {
    fn from(error: RateLimitError) -> Self {
        Self::error(vec![ContentBlock::text(message(&error))])
    }
}

are_outputs!(CallToolResult);

/// The [`ErrorData`] of the refusal, for tools that return `Result<T, RateLimitError>`.
impl IntoCallToolResult for RateLimitError {
    fn into_call_tool_result(self) -> Result<CallToolResponse, ErrorData> {
        Err(self.into())
    }
}
