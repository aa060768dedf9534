//! Services whose macros rewrite handlers: the second call of a limit of one is refused, and its client sees that.

use ratelimit_runtime::{RateLimitError, rate_limit};

use crate::REFUSED;

mod graphql {
    use async_graphql::{Context, EmptyMutation, EmptySubscription, Object, Request, Schema};

    use super::{REFUSED, rate_limit};

    struct User(&'static str);
    struct Query;

    #[Object]
    impl Query {
        /// The macro makes a `Result` of it.
        #[rate_limit(period = 30, threshold = 1)]
        async fn plain(&self) -> String {
            "hello".into()
        }

        #[rate_limit(period = 30, threshold = 1, key = context.data::<User>()?.0)]
        async fn of_a_user(&self, context: &Context<'_>) -> async_graphql::Result<i32> {
            let _ = context;
            Ok(1)
        }
    }

    #[tokio::test]
    async fn a_refusal_is_an_error_of_its_field() {
        let schema = Schema::new(Query, EmptyMutation, EmptySubscription);
        for query in ["{plain}", "{ofAUser}"] {
            let ask = || schema.execute(Request::new(query).data(User("alice")));
            assert!(ask().await.is_ok());
            let errors = ask().await.errors;
            assert!(errors[0].message.contains(REFUSED), "{errors:?}");
        }
    }
}

mod graphql_by_juniper {
    use juniper::{
        EmptyMutation, EmptySubscription, FieldResult, RootNode, Variables, graphql_object,
    };

    use super::{REFUSED, rate_limit};

    struct User(String);
    impl juniper::Context for User {}
    struct Query;

    #[graphql_object]
    #[graphql(context = User)]
    impl Query {
        #[rate_limit(period = 30, threshold = 1, key = &context.0)]
        async fn hello(context: &User) -> FieldResult<String> {
            Ok(context.0.clone())
        }
    }

    #[tokio::test]
    async fn a_refusal_is_an_error_of_its_field() {
        let root =
            RootNode::new(Query, EmptyMutation::<User>::new(), EmptySubscription::<User>::new());
        let user = User("alice".into());
        let (variables, query) = (Variables::new(), "{hello}");
        let first = juniper::execute(query, None, &root, &variables, &user).await.unwrap();
        assert!(first.1.is_empty());
        let second = juniper::execute(query, None, &root, &variables, &user).await.unwrap();
        assert!(second.1[0].error().message().contains(REFUSED), "{second:?}");
    }
}

mod json_rpc {
    use jsonrpsee::{
        Extensions,
        core::{ClientError, RpcResult, async_trait},
        http_client::HttpClient,
        proc_macros::rpc,
        server::{ConnectionId, Server},
        types::ErrorObjectOwned,
    };

    use super::{REFUSED, RateLimitError, rate_limit};

    #[rpc(server, client)]
    trait Api {
        #[method(name = "hello", with_extensions)]
        async fn hello(&self) -> RpcResult<String>;
    }

    struct Service;

    fn refused(error: RateLimitError) -> ErrorObjectOwned {
        ErrorObjectOwned::owned(429, error.to_string(), None::<()>)
    }

    #[async_trait]
    impl ApiServer for Service {
        #[rate_limit(
            period = 30,
            threshold = 1,
            key = extensions.get::<ConnectionId>().map(|it| it.0),
            otherwise = |error| Err(refused(error))
        )]
        async fn hello(&self, extensions: &Extensions) -> RpcResult<String> {
            let _ = extensions;
            Ok("hello".into())
        }
    }

    #[tokio::test]
    async fn a_refusal_is_an_error_of_the_call() {
        let server = Server::builder().build("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let _handle = server.start(Service.into_rpc());
        let client = HttpClient::builder().build(format!("http://{address}")).unwrap();
        assert_eq!(client.hello().await.unwrap(), "hello");
        let Err(ClientError::Call(error)) = client.hello().await else { panic!("admitted") };
        assert!(error.code() == 429 && error.message().contains(REFUSED), "{error}");
    }
}

mod open_api {
    use poem::{Route, http::StatusCode, test::TestClient};
    use poem_openapi::{OpenApi, OpenApiService, param::Query, payload::PlainText};

    use super::{RateLimitError, rate_limit};

    struct Api;

    fn refused(error: RateLimitError) -> poem::Error {
        poem::Error::from_string(error.to_string(), StatusCode::TOO_MANY_REQUESTS)
    }

    #[OpenApi]
    impl Api {
        #[oai(path = "/below", method = "get")]
        #[rate_limit(period = 30, threshold = 1, key = &user.0, otherwise = |it| Err(refused(it)))]
        async fn below(&self, user: Query<String>) -> poem::Result<PlainText<String>> {
            Ok(PlainText(user.0))
        }

        #[rate_limit(period = 30, threshold = 1, key = &user.0, otherwise = |it| Err(refused(it)))]
        #[oai(path = "/above", method = "get")]
        async fn above(&self, user: Query<String>) -> poem::Result<PlainText<String>> {
            Ok(PlainText(user.0))
        }
    }

    #[tokio::test]
    async fn a_refusal_is_a_429_in_both_orders() {
        let client = TestClient::new(Route::new().nest("/", OpenApiService::new(Api, "api", "1")));
        for path in ["/below", "/above"] {
            let ask = || client.get(path).query("user", &"alice").send();
            ask().await.assert_status_is_ok();
            ask().await.assert_status(StatusCode::TOO_MANY_REQUESTS);
        }
    }
}

mod rocket_routes {
    use rocket::{
        get, http::Status, local::asynchronous::Client, response::status::Custom, routes,
    };

    use super::{RateLimitError, rate_limit};

    type Answer = Result<String, Custom<String>>;

    fn refused(error: RateLimitError) -> Custom<String> {
        Custom(Status::TooManyRequests, error.to_string())
    }

    #[get("/below/<user>")]
    #[rate_limit(period = 30, threshold = 1, key = user, otherwise = |it| Err(refused(it)))]
    async fn below(user: &str) -> Answer {
        Ok(user.into())
    }

    #[rate_limit(period = 30, threshold = 1, key = user, otherwise = |it| Err(refused(it)))]
    #[get("/above/<user>")]
    async fn above(user: &str) -> Answer {
        Ok(user.into())
    }

    #[tokio::test]
    async fn a_refusal_is_a_429_in_both_orders() {
        let client = Client::untracked(rocket::build().mount("/", routes![below, above]));
        let client = client.await.unwrap();
        for path in ["/below/alice", "/above/alice"] {
            assert_eq!(client.get(path).dispatch().await.status(), Status::Ok);
            assert_eq!(client.get(path).dispatch().await.status(), Status::TooManyRequests);
        }
    }
}

mod salvo_handlers {
    use salvo::{
        Router, Service, handler,
        http::{StatusCode, StatusError},
        test::TestClient,
    };

    use super::{RateLimitError, rate_limit};

    fn refused(error: RateLimitError) -> StatusError {
        StatusError::too_many_requests().brief(error.to_string())
    }

    #[handler]
    #[rate_limit(period = 30, threshold = 1, otherwise = |it| Err(refused(it)))]
    async fn below() -> Result<&'static str, StatusError> {
        Ok("hello")
    }

    #[rate_limit(period = 30, threshold = 1, otherwise = |it| Err(refused(it)))]
    #[handler]
    async fn above() -> Result<&'static str, StatusError> {
        Ok("hello")
    }

    #[tokio::test]
    async fn a_refusal_is_a_429_in_both_orders() {
        for router in [Router::new().get(below), Router::new().get(above)] {
            let service = Service::new(router);
            for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
                let answer = TestClient::get("http://127.0.0.1/").send(&service).await;
                assert_eq!(answer.status_code, Some(status));
            }
        }
    }
}

mod tarpc_services {
    use futures_util::StreamExt;
    use tarpc::{
        client,
        context::{self, Context},
        server::{BaseChannel, Channel},
    };

    use super::{REFUSED, rate_limit};

    #[tarpc::service]
    trait Hello {
        async fn hello(name: String) -> Result<String, String>;
    }

    #[derive(Clone)]
    struct Service;

    impl Hello for Service {
        #[rate_limit(period = 30, threshold = 1, key = &name, otherwise = |it| Err(it.to_string()))]
        async fn hello(self, _: Context, name: String) -> Result<String, String> {
            Ok(name)
        }
    }

    #[tokio::test]
    async fn a_refusal_is_the_error_of_the_method() {
        let (here, there) = tarpc::transport::channel::unbounded();
        let calls = BaseChannel::with_defaults(there).execute(Service.serve());
        tokio::spawn(calls.for_each(|call| async { drop(tokio::spawn(call)) }));
        let client = HelloClient::new(client::Config::default(), here).spawn();
        let ask = || client.hello(context::current(), "alice".into());
        assert!(ask().await.unwrap().is_ok());
        assert!(ask().await.unwrap().unwrap_err().contains(REFUSED));
    }
}

mod actors {
    use kameo::{messages, prelude::*};

    use super::{RateLimitError, rate_limit};

    #[derive(Actor)]
    struct Counter;

    #[messages]
    impl Counter {
        #[message]
        #[rate_limit(period = 30, threshold = 1, key = &user)]
        async fn below(&mut self, user: String) -> Result<u32, RateLimitError> {
            let _ = user;
            Ok(1)
        }

        #[rate_limit(period = 30, threshold = 1, key = &user)]
        #[message]
        async fn above(&mut self, user: String) -> Result<u32, RateLimitError> {
            let _ = user;
            Ok(1)
        }

        #[message]
        #[rate_limit(period = 30, threshold = 1, otherwise = ())]
        async fn told(&mut self) {}
    }

    #[tokio::test]
    async fn a_refusal_is_the_error_of_a_question() {
        let actor = Counter::spawn(Counter);
        let user = || "alice".to_owned();
        assert!(actor.ask(Below { user: user() }).await.is_ok());
        assert!(actor.ask(Below { user: user() }).await.is_err());
        assert!(actor.ask(Above { user: user() }).await.is_ok());
        assert!(actor.ask(Above { user: user() }).await.is_err());
        // An error after `tell` would stop the actor; `otherwise` is none.
        for _ in 0..3 {
            actor.tell(Told).await.unwrap();
        }
        assert!(actor.ask(Above { user: "bob".into() }).await.is_ok());
    }
}

mod d_bus {
    use std::os::unix::net::UnixStream;

    use zbus::{Connection, connection::Builder, fdo, interface, message::Header};

    use super::{RateLimitError, rate_limit};

    struct Object;

    #[derive(Debug, zbus::DBusError)]
    #[zbus(prefix = "org.example")]
    enum Failure {
        #[zbus(error)]
        Bus(zbus::Error),
        Limited(String),
    }

    impl From<RateLimitError> for Failure {
        fn from(error: RateLimitError) -> Self {
            Self::Limited(error.to_string())
        }
    }

    #[interface(name = "org.example.Object")]
    impl Object {
        #[rate_limit(period = 30, threshold = 1)]
        async fn converted(&self) -> Result<u32, Failure> {
            Ok(1)
        }

        #[rate_limit(
            period = 30,
            threshold = 1,
            key = header.sender().map_or("", |it| it.as_str()),
            otherwise = |error| Err(fdo::Error::LimitsExceeded(error.to_string()))
        )]
        async fn named(&self, #[zbus(header)] header: Header<'_>) -> fdo::Result<u32> {
            let _ = header;
            Ok(1)
        }
    }

    async fn connected() -> (Connection, Connection) {
        let (here, there) = UnixStream::pair().unwrap();
        let guid = zbus::Guid::try_from("0123456789abcdef0123456789abcdef").unwrap();
        let server = Builder::unix_stream(there).server(guid).p2p();
        let server = server.serve_at("/object", Object).build();
        let client = Builder::unix_stream(here).p2p().build();
        let (server, client) = tokio::join!(server, client);
        (server.unwrap(), client.unwrap())
    }

    #[tokio::test]
    async fn a_refusal_is_a_named_error() {
        let (_server, client) = connected().await;
        for (method, name) in [("Converted", "org.example.Limited"), ("Named", "LimitsExceeded")] {
            let interface = Some("org.example.Object");
            let ask = || client.call_method(None::<&str>, "/object", interface, method, &());
            assert!(ask().await.is_ok());
            let error = format!("{:?}", ask().await.unwrap_err());
            assert!(error.contains(name), "{error}");
        }
    }
}
