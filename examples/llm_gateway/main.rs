//! `cargo run -p examples-llm-gateway --example llm_gateway`
//!
//! A gateway to a language model, whose tokens are limited. What a request takes is known only
//! afterwards: its maximum is reserved, and settled at what it took. An account has five requests in
//! flight at most.

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
    let stop = async { ctrl_c().await.unwrap_or_default() };
    axum::serve(listener, gateway::router()).with_graceful_shutdown(stop).await?;
    // What the last requests took.
    limiter().flush().await?;
    Ok(())
}
