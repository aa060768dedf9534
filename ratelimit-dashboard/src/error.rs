//! The errors of requests that are not served.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use ratelimit_runtime::{RateLimitError, overrides::OverrideError};
use serde_json::json;

use crate::reply;

/// The response to a request that is not served: a status, and the reason for its sender.
pub(super) struct ActionError(pub(super) StatusCode, String);

impl ActionError {
    pub(super) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self(status, why.into())
    }

    /// Returns the error of a request that is malformed.
    pub(super) fn bad_request(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    /// Returns the error of a sender who may not do this.
    pub(super) fn forbidden(why: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, why)
    }

    /// Returns the error of what a request names and is not there.
    pub(super) fn not_found(why: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, why)
    }

    /// Returns the error of a request that does not fit what holds now.
    pub(super) fn conflict(why: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, why)
    }

    /// Returns the error of values that break a rule.
    pub(super) fn refused(why: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, why)
    }

    /// Returns the error of what cannot be done now.
    pub(super) fn unavailable(why: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, why)
    }
}

impl From<OverrideError> for ActionError {
    fn from(error: OverrideError) -> Self {
        Self::refused(error.to_string())
    }
}

impl From<RateLimitError> for ActionError {
    fn from(error: RateLimitError) -> Self {
        match error {
            RateLimitError::InvalidPolicy(_) | RateLimitError::TooLarge(_) => {
                Self::conflict(error.to_string())
            }
            _ => Self::unavailable(error.to_string()),
        }
    }
}

impl IntoResponse for ActionError {
    fn into_response(self) -> Response {
        let Self(status, error) = self;
        (status, reply(&json!({ "error": error }))).into_response()
    }
}
