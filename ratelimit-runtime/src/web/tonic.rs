//! A refusal as a gRPC status.

use tonic::{Code, Status};

use crate::error::RateLimitError;

/// `RESOURCE_EXHAUSTED` for a limit that is reached, `UNAVAILABLE` when the store could not decide,
/// `INTERNAL` for a policy that breaks a rule.
impl From<RateLimitError> for Status {
    fn from(error: RateLimitError) -> Self {
        let code = match error {
            RateLimitError::Exceeded(_) => Code::ResourceExhausted,
            RateLimitError::Unavailable(_) => Code::Unavailable,
            RateLimitError::InvalidPolicy(_) => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}
