#!/usr/bin/env bash
# reqwest repeats requests by a policy with a scope: `retry::for_host("quotes.test")` is for that host alone, as another
# one may not stand the same request twice. The scope is asked for the second retry and later ones, and not for the
# first. So a POST to any other host that answers 429 is sent again, once and at once, if the classifier takes 429 for
# worth a retry. It is counted twice there. The classifier has to look at the host as well.
. "$(dirname "$0")/setup"
with_crates <<'TOML'
reqwest = { version = "=0.13.5", default-features = false }
tokio = { version = "1", features = ["macros", "rt"] }
TOML
cat >src/main.rs <<'RS'
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use reqwest::{Client, StatusCode, retry};

static SEEN: AtomicU32 = AtomicU32::new(0);

/// Refuses every request.
fn serve(listener: TcpListener) {
    for connection in listener.incoming() {
        let connection = connection.unwrap();
        thread::spawn(move || {
            let (mut reader, mut writer) = (BufReader::new(&connection), &connection);
            loop {
                let mut length = 0;
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap_or(0) == 0 {
                        return;
                    }
                    if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    if line == "\r\n" {
                        break;
                    }
                }
                reader.read_exact(&mut vec![0; length]).unwrap();
                SEEN.fetch_add(1, Ordering::SeqCst);
                let answer = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n";
                writer.write_all(answer).unwrap();
            }
        });
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(|| serve(listener));

    let mut found = Vec::new();
    for (policy, retries) in [("for_host", true), ("never", false)] {
        let policy_of = || match retries {
            true => retry::for_host("quotes.test").classify_fn(|answer| match answer.status() {
                Some(StatusCode::TOO_MANY_REQUESTS) => answer.retryable(),
                _ => answer.success(),
            }),
            false => retry::never(),
        };
        for host in ["quotes.test", "payments.test"] {
            let client = Client::builder().no_proxy().resolve(host, address).retry(policy_of()).build().unwrap();
            SEEN.store(0, Ordering::SeqCst);
            let answer = client.post(format!("http://{host}:{}/", address.port())).body("pay").send().await.unwrap();
            let seen = SEEN.load(Ordering::SeqCst);
            println!("{policy}, one POST to {host}: {}, the server has seen {seen}", answer.status().as_u16());
            found.push(seen);
        }
    }
    assert_eq!(found, [3, 2, 1, 1]);
}
RS
cargo run --quiet
