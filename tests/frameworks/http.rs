//! Services over HTTP: the second call of a limit of one is a 429.

use ratelimit_runtime::{RateLimitError, rate_limit};

mod cot_views {
    use cot::{
        App, AppBuilder, Error, Project, StatusCode,
        config::ProjectConfig,
        html::Html,
        project::RegisterAppsContext,
        request::extractors::Path,
        router::{Route, Router},
        test::Client,
    };

    use super::{RateLimitError, rate_limit};

    fn refused(error: RateLimitError) -> Error {
        Error::with_status(error.to_string(), StatusCode::TOO_MANY_REQUESTS)
    }

    #[rate_limit(period = 30, threshold = 1, key = user, otherwise = |it| Err(refused(it)))]
    async fn hello(Path(user): Path<String>) -> cot::Result<Html> {
        Ok(Html::new(format!("hello {user}")))
    }

    struct Views;

    impl App for Views {
        fn name(&self) -> &'static str {
            "views"
        }

        fn router(&self) -> Router {
            Router::with_urls([Route::with_handler("/{user}", hello)])
        }
    }

    struct Site;

    impl Project for Site {
        fn config(&self, _: &str) -> cot::Result<ProjectConfig> {
            Ok(ProjectConfig::default())
        }

        fn register_apps(&self, apps: &mut AppBuilder, _: &RegisterAppsContext) {
            apps.register_with_views(Views, "");
        }
    }

    #[tokio::test]
    async fn a_refusal_is_an_error_page_of_status_429() {
        let mut client = Client::new(Site).await;
        for (path, status) in [("/alice", 200), ("/alice", 429), ("/bob", 200)] {
            assert_eq!(client.get(path).await.unwrap().status(), status, "{path}");
        }
    }
}

mod dropshot_endpoints {
    use std::net::IpAddr;

    use dropshot::{
        ApiDescription, ClientErrorStatusCode, ConfigLogging, ConfigLoggingLevel, HttpError,
        HttpResponseOk, Path, RequestContext, ServerBuilder, endpoint,
    };
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::{RateLimitError, rate_limit};

    type Answer = Result<HttpResponseOk<String>, HttpError>;

    fn refused(error: RateLimitError) -> HttpError {
        let status = ClientErrorStatusCode::TOO_MANY_REQUESTS;
        HttpError::for_client_error(None, status, error.to_string())
    }

    fn who(at: &RequestContext<()>) -> IpAddr {
        at.request.remote_addr().ip()
    }

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct User {
        user: String,
    }

    #[endpoint { method = GET, path = "/below/{user}" }]
    #[rate_limit(period = 30, threshold = 1, key = who(&at), otherwise = |it| Err(refused(it)))]
    async fn below(at: RequestContext<()>, path: Path<User>) -> Answer {
        Ok(HttpResponseOk(path.into_inner().user))
    }

    #[rate_limit(period = 30, threshold = 1, key = who(&at), otherwise = |it| Err(refused(it)))]
    #[endpoint { method = GET, path = "/above/{user}" }]
    async fn above(at: RequestContext<()>, path: Path<User>) -> Answer {
        Ok(HttpResponseOk(path.into_inner().user))
    }

    #[tokio::test]
    async fn a_refusal_is_a_429_in_both_orders() {
        let mut api = ApiDescription::new();
        api.register(below).unwrap();
        api.register(above).unwrap();
        let log = ConfigLogging::StderrTerminal { level: ConfigLoggingLevel::Error };
        let log = log.to_logger("test").unwrap();
        let server = ServerBuilder::new(api, (), log).start().unwrap();
        for path in ["/below/alice", "/above/alice"] {
            for status in ["200", "429"] {
                let mut connection = TcpStream::connect(server.local_addr()).await.unwrap();
                let head = "HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
                let request = format!("GET {path} {head}");
                connection.write_all(request.as_bytes()).await.unwrap();
                let mut answer = String::new();
                connection.read_to_string(&mut answer).await.unwrap();
                assert_eq!(answer.split(' ').nth(1), Some(status), "{answer}");
            }
        }
    }
}

mod ntex_routes {
    use ntex::web::{
        self, App,
        error::InternalError,
        test::{TestRequest, call_service, init_service},
        types::Path,
    };

    use super::{RateLimitError, rate_limit};

    fn refused(error: RateLimitError) -> InternalError<String> {
        InternalError::new(error.to_string(), ntex::http::StatusCode::TOO_MANY_REQUESTS)
    }

    #[web::get("/below/{user}")]
    #[rate_limit(period = 30, threshold = 1, key = &*user, otherwise = |it| Err(refused(it)))]
    async fn below(user: Path<String>) -> Result<String, InternalError<String>> {
        Ok(user.into_inner())
    }

    #[rate_limit(period = 30, threshold = 1, key = &*user, otherwise = |it| Err(refused(it)))]
    #[web::get("/above/{user}")]
    async fn above(user: Path<String>) -> Result<String, InternalError<String>> {
        Ok(user.into_inner())
    }

    #[ntex::test]
    async fn a_refusal_is_a_429_in_both_orders() {
        let app = init_service(App::new().service((below, above))).await;
        for path in ["/below/alice", "/above/alice"] {
            for status in [200, 429] {
                let request = TestRequest::with_uri(path).to_request();
                assert_eq!(call_service(&app, request).await.status().as_u16(), status);
            }
        }
    }
}

mod lambda {
    use lambda_http::{
        Adapter, Body, LambdaEvent, Request, RequestExt, Response, Service, request::LambdaRequest,
        service_fn,
    };
    use serde_json::json;

    use super::{RateLimitError, rate_limit};

    fn refused(error: RateLimitError) -> Response<Body> {
        let mut response = Response::new(error.to_string().into());
        *response.status_mut() = lambda_http::http::StatusCode::TOO_MANY_REQUESTS;
        response
    }

    #[rate_limit(
        period = 30,
        threshold = 1,
        key = request.query_string_parameters_ref().and_then(|it| it.first("user")),
        otherwise = |error| Ok(refused(error))
    )]
    async fn hello(request: Request) -> Result<Response<Body>, lambda_http::Error> {
        let _ = request;
        Ok(Response::new("hello".into()))
    }

    #[rate_limit(period = 30, threshold = 1)]
    async fn with_an_error(_: Request) -> Result<&'static str, lambda_http::Error> {
        Ok("hello")
    }

    fn event() -> LambdaEvent<LambdaRequest> {
        let http = json!({
            "method": "GET", "path": "/", "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1",
        });
        let event = json!({
            "version": "2.0", "rawPath": "/", "rawQueryString": "user=alice", "headers": {},
            "queryStringParameters": {"user": "alice"}, "isBase64Encoded": false,
            "requestContext": {"http": http, "stage": "$default"},
        });
        let event: LambdaRequest = serde_json::from_value(event).unwrap();
        LambdaEvent::new(event, lambda_http::Context::default())
    }

    #[tokio::test]
    async fn a_refusal_is_an_answer_or_a_failed_invocation() {
        let mut failing = Adapter::from(service_fn(with_an_error));
        assert!(failing.call(event()).await.is_ok());
        assert!(failing.call(event()).await.is_err());
        let mut service = Adapter::from(service_fn(hello));
        for status in [200, 429] {
            let answer = service.call(event()).await.unwrap();
            let answer = serde_json::to_value(answer).unwrap();
            assert_eq!(answer["statusCode"], status, "{answer}");
        }
    }
}
