//! `cargo run -p examples-outbound --example reqwest_client`
//!
//! A middleware of reqwest: a request waits for its turn, is sent, heeds the answer, and is sent again within its time.
//! The remote service refuses the second and the fourth call, and asks for a pause of two seconds each time. It prints
//!
//! ```text
//! sunny   200 OK, after 0 s
//! cloudy  200 OK, after 2 s
//! rainy   429 Too Many Requests, after 0 s
//! stormy  rate limit `weather` exceeded: at most 10 per 1s, retry after 2s, after 0 s
//! the service was called by sunny, after 0 s
//! the service was called by cloudy (429), after 0 s
//! the service was called by cloudy, after 2 s
//! the service was called by rainy (429), after 2 s
//! ```

mod remote;

use std::{error::Error, time::Duration};

use async_trait::async_trait;
use axum::http::Extensions;
use ratelimit_runtime::{Limiter, Policy};
use reqwest::{Request, Response, StatusCode};
use reqwest_middleware::{ClientBuilder, Middleware, Next, Result};
use tokio::time::Instant;

use remote::Remote;

/// The limit of the service.
pub(crate) const PACE: Policy = Policy::sliding_window("weather", Duration::from_secs(1), 10);

/// Keeps requests within the limit of each host, over all processes that share the limiter.
struct Heed {
    limiter: Limiter,
    /// The time for which a request may wait for its turns in all.
    max_wait: Duration,
}

#[async_trait]
impl Middleware for Heed {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let ends = Instant::now() + self.max_wait;
        let host = request.url().host_str().unwrap_or_default().to_owned();
        let mut refused = None;
        loop {
            let left = ends.saturating_duration_since(Instant::now());
            let decision = match (self.limiter.check(&PACE, &*host).max_wait(left).await, refused) {
                (Ok(decision), _) => decision,
                // The pause is longer than the request may wait.
                (Err(_), Some(response)) => return Ok(response),
                (Err(error), None) => return Err(reqwest_middleware::Error::middleware(error)),
            };
            // A body that is a stream is sent once.
            let again = request.try_clone();
            let response = next.clone().run(request, extensions).await?;
            let (status, headers) = (response.status(), response.headers());
            let is_paused = self.limiter.heed(&decision, status, headers).await.unwrap_or(false);
            let is_refusal =
                [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&status);
            match again {
                Some(again) if is_paused && is_refusal => request = again,
                _ => return Ok(response),
            }
            refused = Some(response);
        }
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn Error>> {
    let (url, remote) = Remote::start(&[2, 4], Duration::from_secs(2)).await?;
    let (limiter, http) = (Limiter::from_env().await?, reqwest::Client::builder().no_proxy());
    let http = http.build()?;
    let ask = async |name: &str, max_wait| {
        let heed = Heed { limiter: limiter.clone(), max_wait: Duration::from_secs(max_wait) };
        let client = ClientBuilder::new(http.clone()).with(heed).build();
        let start = Instant::now();
        let end = match client.get(format!("{url}/{name}")).send().await {
            Ok(response) => response.status().to_string(),
            Err(error) => error.to_string(),
        };
        println!("{name:8}{end}, after {} s", start.elapsed().as_secs());
    };
    let start = std::time::Instant::now();
    ask("sunny", 30).await;
    ask("cloudy", 30).await;
    // Gets the answer, because the pause is longer than it may wait; the next one is not sent.
    ask("rainy", 1).await;
    ask("stormy", 1).await;
    for call in remote.calls() {
        println!("the service was called by {call}, after {} s", (call.at - start).as_secs());
    }
    Ok(())
}
