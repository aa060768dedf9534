//! A refusal as the bare status type of a framework.

use super::Refusal;
use crate::{error::RateLimitError, rejection::are_outputs};

macro_rules! status {
    ($status:ty) => {
        /// The bare status: that of [`Refusal::status`].
        impl From<RateLimitError> for $status {
            fn from(error: RateLimitError) -> Self {
                Self::from_u16(Refusal::from(error).status()).unwrap_or(Self::INTERNAL_SERVER_ERROR)
            }
        }

        /// The status and the error's text.
        impl From<RateLimitError> for ($status, String) {
            fn from(error: RateLimitError) -> Self {
                let text = error.to_string();
                (error.into(), text)
            }
        }

        /// The status and its reason phrase.
        impl From<RateLimitError> for ($status, &'static str) {
            fn from(error: RateLimitError) -> Self {
                let status = <$status>::from(error);
                (status, status.canonical_reason().unwrap_or_default())
            }
        }

        are_outputs!($status, ($status, String), ($status, &'static str));
    };
}

#[cfg(feature = "tower")]
status!(http::StatusCode);
#[cfg(feature = "actix")]
status!(actix_web::http::StatusCode);
