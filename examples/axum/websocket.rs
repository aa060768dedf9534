//! `cargo run -p examples-axum --example websocket`
//!
//! A service that sends each message of a `WebSocket` back. A user has two connections at one time: the task that serves
//! one owns the decision. Each message is a check by hand, three in ten seconds over all connections of the user. The same
//! program is also the client:
//!
//! ```text
//! $ cargo run -p examples-axum --example websocket talk ws://127.0.0.1:3000/echo/alice
//! connection 1: open
//! connection 2: open
//! connection 3: 429 Too Many Requests
//! message 1: one
//! message 2: two
//! message 3: three
//! message 4: slow down, again in 10.0s
//! connection 1: closed
//! connection 4: open
//! ```

use std::{env, error::Error, time::Duration};

use axum::{
    Router,
    extract::{
        Path,
        ws::{Message, WebSocket, WebSocketUpgrade},
    },
    response::Response,
    routing::get,
};
use futures_util::{SinkExt, StreamExt};
use ratelimit_runtime::{Decision, Limiter, Policy, RateLimitError, install, limiter};
use tokio::{net::TcpListener, time::sleep};
use tokio_tungstenite::{
    connect_async,
    tungstenite::{self, http::StatusCode},
};

pub(crate) const SOCKETS: Policy = Policy::concurrency_limit("sockets", 2);
pub(crate) const MESSAGES: Policy = Policy::sliding_window("messages", Duration::from_secs(10), 3);

/// Refuses the third connection before the upgrade, so that its client gets a 429.
async fn echo(
    Path(user): Path<String>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, RateLimitError> {
    let in_flight = limiter().check(&SOCKETS, user.as_str()).await?;
    Ok(upgrade.on_upgrade(move |socket| serve(socket, user, in_flight)))
}

/// Serves a connection, which is in flight until the decision is dropped.
async fn serve(mut socket: WebSocket, user: String, _in_flight: Decision) {
    while let Some(Ok(message)) = socket.recv().await {
        let Message::Text(text) = message else { continue };
        let answer = match limiter().check(&MESSAGES, user.as_str()).await {
            Ok(_) => text,
            Err(RateLimitError::Exceeded(refusal)) => {
                format!("slow down, again in {:.1?}", refusal.retry_after()).into()
            }
            Err(error) => error.to_string().into(),
        };
        if socket.send(Message::Text(answer)).await.is_err() {
            break;
        }
    }
}

async fn listen(address: &str) -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    install(Limiter::from_env().await?)?;
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, Router::new().route("/echo/{user}", get(echo))).await?;
    Ok(())
}

/// The client: opens three connections, sends four messages, and opens another one when the first has closed.
async fn talk(url: &str) -> Result<(), Box<dyn Error>> {
    let mut open = Vec::new();
    for number in 1..=3 {
        match connect_async(url).await {
            Ok((socket, _)) => {
                open.push(socket);
                println!("connection {number}: open");
            }
            Err(tungstenite::Error::Http(response)) => {
                println!("connection {number}: {}", response.status());
            }
            Err(error) => return Err(error.into()),
        }
    }
    let mut first = open.swap_remove(0);
    for (number, text) in (1..).zip(["one", "two", "three", "four"]) {
        first.send(text.into()).await?;
        let answer = first.next().await.ok_or("the connection is closed")??;
        println!("message {number}: {answer}");
    }
    first.close(None).await?;
    while first.next().await.is_some() {}
    println!("connection 1: closed");
    loop {
        match connect_async(url).await {
            Ok(_) => break,
            // Its task has not ended yet.
            Err(tungstenite::Error::Http(response))
                if response.status() == StatusCode::TOO_MANY_REQUESTS =>
            {
                sleep(Duration::from_millis(10)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    println!("connection 4: open");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["talk", url] => talk(url).await,
        [address] => listen(address).await,
        _ => listen("127.0.0.1:3000").await,
    }
}
