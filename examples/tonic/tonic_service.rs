//! `cargo run -p examples-tonic --example tonic_service`
//!
//! A gRPC service with a limited method, counted by API key or address. The same program is also the
//! client, which calls three times:
//!
//! ```text
//! $ cargo run -p examples-tonic --example tonic_service call http://127.0.0.1:50051 key-of-alice
//! hello, you, Some("\"greet\";r=1;t=30")
//! hello, you, Some("\"greet\";r=0;t=30")
//! ResourceExhausted: rate limit `greet` exceeded: at most 2 per 30s, retry after 30s
//! Some(RetryInfo { retry_delay: Some(..s) })
//! Some(QuotaFailure { violations: [QuotaViolation { subject: "greet", description: "rate limit `greet` exceeded: at most 2 per 30s, retry after 30s", api_service: "", quota_metric: "", quota_id: "", quota_dimensions: {}, quota_value: 0, futura_quota_value: None }] })
//! ```
//!
//! `TRUSTED_PROXIES=networks cargo run ..` counts clients by their address behind the proxies in this file,
//! one network on each line.

mod greeter;

use std::{env, error::Error};

use greeter::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use ratelimit_runtime::{
    Caller, Limiter, install, rate_limit,
    web::{
        self, ClientAddress, TrustedProxies,
        tower::{Identity, IdentityLayer},
    },
};
use tokio::net::TcpListener;
use tonic::{
    Request, Response, Status,
    codegen::http::request::Parts,
    transport::{Server, server::TcpIncoming},
};
use tonic_types::StatusExt;

struct MyGreeter;

#[tonic::async_trait]
impl Greeter for MyGreeter {
    #[rate_limit(name = "greet", period = 30, threshold = 2)]
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let message = format!("hello, {}", request.into_inner().name);
        Ok(Response::new(HelloReply { message }))
    }
}

/// Returns the owner of an API key. An unknown key has no owner, and therefore no quota of its own.
fn key_owner(request: &Parts) -> Option<Caller> {
    match request.headers.get("x-api-key")?.as_bytes() {
        b"key-of-alice" => Some("alice".into()),
        _ => None,
    }
}

async fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    install(Limiter::from_env().await?)?;
    let client = match env::var_os("TRUSTED_PROXIES") {
        Some(file) => Identity::address(ClientAddress::behind(TrustedProxies::follow_file(file)?)),
        None => Identity::peer(),
    };
    let identity = Identity::from_fn(key_owner).or(client);
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Server::builder()
        .layer(IdentityLayer::new(identity).respond(web::tonic::respond))
        .add_service(GreeterServer::new(MyGreeter))
        .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))
        .await?;
    Ok(())
}

async fn call(url: String, key: &str) -> Result<(), Box<dyn Error>> {
    let mut client = GreeterClient::connect(url).await?;
    for _ in 0..3 {
        let mut request = Request::new(HelloRequest { name: "you".to_owned() });
        request.metadata_mut().insert("x-api-key", key.parse()?);
        match client.say_hello(request).await {
            Ok(response) => {
                let left = response.metadata().get("ratelimit");
                println!("{}, {left:?}", response.get_ref().message);
            }
            Err(status) => {
                println!("{:?}: {}", status.code(), status.message());
                println!("{:?}", status.get_details_retry_info());
                println!("{:?}", status.get_details_quota_failure());
            }
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["call", url, key] => call(url.to_owned(), key).await,
        [address] => serve(address).await,
        _ => serve("127.0.0.1:50051").await,
    }
}
