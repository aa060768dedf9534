//! The time at which the client of a gRPC call gives up.

use std::time::{Duration, Instant};

use http::request::Parts;

use crate::web::response::ResponseSettings;

impl ResponseSettings {
    /// Returns the settings for a request, with its deadline.
    pub(super) fn to(self, request: &Parts) -> Self {
        let timeout = request.headers.get("grpc-timeout").and_then(|it| timeout(it.to_str().ok()?));
        let gives_up = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Self { gives_up, ..self }
    }
}

/// Returns a timeout as gRPC writes it: at most eight digits and a unit, such as `100m`.
fn timeout(written: &str) -> Option<Duration> {
    let (amount, unit) = written.split_at_checked(written.len().checked_sub(1)?)?;
    let is_amount = amount.len() <= 8 && amount.bytes().all(|it| it.is_ascii_digit());
    let amount: u64 = amount.parse().ok().filter(|_| is_amount)?;
    match unit {
        "H" => Some(Duration::from_secs(amount * 3_600)),
        "M" => Some(Duration::from_secs(amount * 60)),
        "S" => Some(Duration::from_secs(amount)),
        "m" => Some(Duration::from_millis(amount)),
        "u" => Some(Duration::from_micros(amount)),
        "n" => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_digits_and_a_unit() {
        for (written, seconds) in
            [("2H", 7_200.0), ("3M", 180.0), ("4S", 4.0), ("500m", 0.5), ("7u", 7e-6), ("8n", 8e-9)]
        {
            assert_eq!(timeout(written), Some(Duration::from_secs_f64(seconds)), "{written}");
        }
        for written in ["", "S", "+1S", "1", "1s", "1.5S", "123456789S", "-1S", "1é"] {
            assert_eq!(timeout(written), None, "{written}");
        }
    }
}
