#!/usr/bin/env bash
# tower's `ConcurrencyLimit` holds its permit for the future of the response, which ends with the status and the fields.
# A streamed body is sent after that, without a permit. With a limit of 1, five downloads run side by side, and a server
# of language models, whose work is the body, is not limited at all. The permit has to be moved into the body.
. "$(dirname "$0")/setup"
with_crates <<'TOML'
bytes = "1"
http = "1"
http-body-util = { version = "0.1.3", features = ["channel"] }
tokio = { version = "1", features = ["full"] }
tower = { version = "=0.5.3", features = ["limit", "util"] }
TOML
cat >src/main.rs <<'RS'
use std::{convert::Infallible, sync::Arc, sync::atomic::{AtomicU32, Ordering}, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, channel::Channel};
use tower::{Service, ServiceBuilder, ServiceExt};

#[tokio::main]
async fn main() {
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let seen = Arc::clone(&most);
    let download = move |_: Request<()>| {
        let (running, most) = (Arc::clone(&running), Arc::clone(&seen));
        async move {
            let (mut sender, body) = Channel::<Bytes>::new(1);
            tokio::spawn(async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                for _ in 0..10 {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    let _ = sender.send_data(Bytes::from_static(b"token ")).await;
                }
                running.fetch_sub(1, Ordering::SeqCst);
            });
            Ok::<_, Infallible>(Response::new(body))
        }
    };
    let service = ServiceBuilder::new().concurrency_limit(1).service_fn(download);
    let clients = (0..5).map(|_| {
        let mut service = service.clone();
        tokio::spawn(async move {
            let response = service.ready().await.unwrap().call(Request::new(())).await.unwrap();
            response.into_body().collect().await.unwrap().to_bytes().len()
        })
    });
    for client in clients.collect::<Vec<_>>() {
        assert_eq!(client.await.unwrap(), 60);
    }
    let most = most.load(Ordering::SeqCst);
    println!("concurrency_limit(1): {most} bodies were sent at once");
    assert_eq!(most, 5);
}
RS
cargo run --quiet
