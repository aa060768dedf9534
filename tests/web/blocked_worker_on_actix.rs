//! A worker of actix-web whose thread is blocked stalls no call of the others.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use actix_web::{
    HttpResponse,
    web::{self, Data},
};
use harness::{RedisServer, patient, until};
use ratelimit_runtime::{
    Limiter, Policy,
    web::actix::{Identity, IdentityMiddleware},
};

use crate::on_actix::Server;

const HOUR: Duration = Duration::from_secs(3_600);
const UPLOAD: Policy = Policy::concurrency_limit("upload", 1).concurrency_timeout(HOUR);

async fn upload(limiter: Data<Limiter>) -> HttpResponse {
    match limiter.check(&UPLOAD, "alice").await {
        Ok(_) => HttpResponse::Ok().finish(),
        Err(error) => HttpResponse::ServiceUnavailable().body(error.to_string()),
    }
}

/// Blocks its thread after a call, until the sender is dropped.
struct Block {
    released: Mutex<mpsc::Receiver<()>>,
    is_blocked: AtomicBool,
}

async fn block(limiter: Data<Limiter>, block: Data<Block>) -> HttpResponse {
    let response = upload(limiter).await;
    block.is_blocked.store(true, Ordering::Relaxed);
    let _ = block.released.lock().unwrap_or_else(PoisonError::into_inner).recv();
    response
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().timeout(HOUR).build().unwrap()
}

#[tokio::test]
async fn calls_on_one_worker_go_on_while_the_other_is_blocked() {
    let redis = RedisServer::start();
    let limiter = Data::new(patient(&redis.url()).await);
    let (release, released) = mpsc::channel();
    let (released, is_blocked) = (Mutex::new(released), AtomicBool::new(false));
    let state = Data::from(Arc::new(Block { released, is_blocked }));
    let blocked = state.clone();
    let server = Server::serve(IdentityMiddleware::new(Identity::peer()), move |config| {
        config.app_data(limiter.clone()).app_data(state.clone());
        config.route("/upload", web::get().to(upload)).route("/block", web::get().to(block));
    });
    let blocking = tokio::spawn(client().get(server.url("/block")).send());
    until("a blocked worker", async || blocked.is_blocked.load(Ordering::Relaxed).then_some(()))
        .await;
    // Connections go to the workers in turn. One that stays open keeps its worker.
    let client = until("a connection to the other worker", async || {
        let client = client();
        let ask = client.get(server.url("/nothing")).timeout(Duration::from_millis(500));
        ask.send().await.ok()?.bytes().await.ok()?;
        Some(client)
    })
    .await;
    for call in 0..20 {
        let response = client.get(server.url("/upload")).send().await.unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap());
        assert_eq!(status, 200, "call {call}: {text}");
    }
    drop(release);
    assert_eq!(blocking.await.unwrap().unwrap().status(), 200);
}
