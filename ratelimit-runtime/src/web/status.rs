//! A refusal as the bare status type of a framework.

use super::Refusal;
use crate::{error::RateLimitError, rejection::FromRejection};

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

        // The compiler's advice on a wrong return type is the same with every feature.
        #[diagnostic::do_not_recommend]
        impl FromRejection for $status {
            fn from_rejection(error: RateLimitError) -> Self {
                error.into()
            }
        }
    };
}

#[cfg(feature = "tower")]
status!(http::StatusCode);
#[cfg(feature = "actix")]
status!(actix_web::http::StatusCode);
