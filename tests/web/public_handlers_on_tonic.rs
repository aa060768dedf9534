//! Methods in the shapes of tonic's route guide are limited by one line each: refused over HTTP, they answer
//! `RESOURCE_EXHAUSTED` with the wait.

mod route_guide {
    #![allow(clippy::pedantic, missing_docs, unreachable_pub, reason = "generated code")]

    use crate::on_tonic::greeter::{HelloReply, HelloRequest};

    include!(concat!(env!("OUT_DIR"), "/routeguide.RouteGuide.rs"));
}

use std::pin::Pin;

use futures_util::StreamExt;
use ratelimit_runtime::{rate_limit, web};
use route_guide::{
    route_guide_client::RouteGuideClient,
    route_guide_server::{RouteGuide, RouteGuideServer},
};
use tokio::net::TcpListener;
use tonic::{
    Code, Request, Response, Status, Streaming,
    codegen::tokio_stream::{self as stream, Stream},
    transport::{Server, server::TcpIncoming},
};
use tonic_types::StatusExt;

use crate::{
    on_tonic::greeter::{HelloReply, HelloRequest},
    support::by_user,
};

type ResponseStream = Pin<Box<dyn Stream<Item = Result<HelloReply, Status>> + Send>>;
type Reply<T> = Result<Response<T>, Status>;

struct RouteGuideService;

fn reply(name: &str) -> HelloReply {
    HelloReply { message: name.to_owned() }
}

#[tonic::async_trait]
impl RouteGuide for RouteGuideService {
    type ListFeaturesStream = ResponseStream;
    type RouteChatStream = ResponseStream;

    #[rate_limit(threshold = 1)]
    async fn get_feature(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        Ok(Response::new(reply(&request.get_ref().name)))
    }

    #[rate_limit(threshold = 1)]
    async fn list_features(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<Self::ListFeaturesStream>, Status> {
        let reply = reply(&request.into_inner().name);
        Ok(Response::new(Box::pin(stream::once(Ok(reply)))))
    }

    #[rate_limit(threshold = 1)]
    async fn record_route(&self, request: Request<Streaming<HelloRequest>>) -> Reply<HelloReply> {
        let mut points = request.into_inner();
        let mut names = String::new();
        while let Some(point) = points.next().await {
            names.push_str(&point?.name);
        }
        Ok(Response::new(reply(&names)))
    }

    #[rate_limit(threshold = 1)]
    async fn route_chat(
        &self,
        request: Request<Streaming<HelloRequest>>,
    ) -> Reply<Self::RouteChatStream> {
        let notes = request.into_inner().map(|note| Ok(reply(&note?.name)));
        Ok(Response::new(Box::pin(notes)))
    }
}

/// A request of alice.
fn of_alice<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("x-user", "alice".parse().unwrap());
    request
}

#[tokio::test]
async fn methods_of_the_route_guide() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = Server::builder()
        .layer(by_user().respond(web::tonic::respond))
        .add_service(RouteGuideServer::new(RouteGuideService));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let mut client = RouteGuideClient::connect(url).await.unwrap();
    let point = || HelloRequest { name: "point".to_owned() };
    let points = || stream::iter([point(), point()]);

    let feature = client.get_feature(of_alice(point())).await.unwrap();
    assert_eq!(feature.into_inner().message, "point");
    let features = client.list_features(of_alice(point())).await.unwrap();
    assert_eq!(features.into_inner().count().await, 1);
    let summary = client.record_route(of_alice(points())).await.unwrap();
    assert_eq!(summary.into_inner().message, "pointpoint");
    let notes = client.route_chat(of_alice(points())).await.unwrap();
    assert_eq!(notes.into_inner().count().await, 2);

    for refused in [
        client.get_feature(of_alice(point())).await.unwrap_err(),
        client.list_features(of_alice(point())).await.unwrap_err(),
        client.record_route(of_alice(points())).await.unwrap_err(),
        client.route_chat(of_alice(points())).await.unwrap_err(),
    ] {
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        assert!(refused.get_details_retry_info().unwrap().retry_delay.is_some(), "{refused}");
    }
}
