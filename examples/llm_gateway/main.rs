//! `cargo run -p examples-llm-gateway --example llm_gateway`
//!
//! A gateway to a language model, whose tokens are limited. What a request takes is known only
//! afterwards: its maximum is reserved, and settled at what it took. An account has five requests in
//! flight at most. The model repeats the prompt, and a token is a word. The keys are `key-of-a-free-plan` and
//! `key-of-a-paid-plan`:
//!
//! ```text
//! $ curl -i http://127.0.0.1:3000/v1/completions -H 'authorization: Bearer key-of-a-free-plan' --json '{"prompt": "say it again", "max_tokens": 100}'
//! HTTP/1.1 200 OK
//! ratelimit-policy: "tokens";q=1000;qu="tokens";w=60
//! ratelimit: "tokens";r=994;t=60
//! x-ratelimit-remaining-tokens: 994
//!
//! {"object":"text_completion","choices":[{"index":0,"text":"say it again"}],"usage":{"prompt_tokens":3,"completion_tokens":3,"total_tokens":6}}
//!
//! $ curl -N http://127.0.0.1:3000/v1/completions -H 'authorization: Bearer key-of-a-free-plan' --json '{"prompt": "a stream", "max_tokens": 100, "stream": true}'
//! data: {"object":"text_completion","choices":[{"index":0,"text":"a"}]}
//!
//! data: {"object":"text_completion","choices":[{"index":0,"text":"stream"}]}
//!
//! data: [DONE]
//!
//! $ curl -i http://127.0.0.1:3000/v1/completions -H 'authorization: Bearer key-of-a-free-plan' --json '{"prompt": "say it again", "max_tokens": 995}'
//! HTTP/1.1 429 Too Many Requests
//! retry-after: 60
//! x-ratelimit-remaining-tokens: 990
//!
//! {"type":..,"violated-policies":["tokens"],"error":{"message":"rate limit `tokens` exceeded: at most 1000 per 60s, retry after 60s","type":"rate_limit_error","code":"rate_limit_exceeded"}}
//!
//! $ curl -i http://127.0.0.1:3000/v1/completions -H 'authorization: Bearer made-up' --json '{"prompt": "say it again", "max_tokens": 100}'
//! HTTP/1.1 401 Unauthorized
//!
//! {"error":{"code":"authentication_error","message":"this API key is unknown",..},"type":"error"}
//! ```
//!
//! It prints such a command when it starts.

mod gateway;
mod upstream;

use std::{env, error::Error};

use ratelimit_runtime::{Limiter, install, limiter};
use tokio::{net::TcpListener, signal::ctrl_c};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    install(Limiter::from_env().await?)?;
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    println!(
        "curl -i http://{}/v1/completions -H 'authorization: Bearer key-of-a-free-plan' \
         --json '{{\"prompt\": \"say it again\", \"max_tokens\": 100}}'",
        listener.local_addr()?
    );
    let stop = async { ctrl_c().await.unwrap_or_default() };
    axum::serve(listener, gateway::router()).with_graceful_shutdown(stop).await?;
    // What the last requests took.
    limiter().flush().await?;
    Ok(())
}
