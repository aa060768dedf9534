//! Tools and prompts of an MCP server under limits answer rmcp's client as documented.

use std::{sync::Arc, time::Duration};

use axum::Router;
use harness::{Lines, listen};
use ratelimit_runtime::{
    Caller, Limiter, OnStoreError, Override, Policy, RateLimitError, rate_limit,
    web::{
        mcp,
        tower::{Identity, IdentityLayer},
    },
};
use rmcp::{
    ErrorData, Json, RoleClient, RoleServer, ServerHandler, ServiceError, ServiceExt,
    handler::server::wrapper::Parameters,
    model::{
        CallToolRequestParams, CallToolResult, ContentBlock, GetPromptRequestParams, JsonObject,
        PromptMessage, Role,
    },
    object, prompt, prompt_handler, prompt_router,
    schemars::{self, JsonSchema},
    service::{RequestContext, RunningService},
    tool, tool_handler, tool_router,
    transport::{
        StreamableHttpClientTransport, StreamableHttpServerConfig,
        streamable_http_client::StreamableHttpClientTransportConfig,
        streamable_http_server::{
            StreamableHttpService,
            session::{local::LocalSessionManager, never::NeverSessionManager},
        },
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    support::{Limited, by_user, client, serve},
    without_a_wait::Held,
};

const MINUTE: Duration = Duration::from_secs(60);
const BY_CALLER: Policy = Policy::sliding_window("by-caller", MINUTE, 2);

#[derive(Deserialize, JsonSchema)]
struct Query {
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct Found {
    hits: u32,
}

#[derive(Clone)]
struct Library {
    limiter: Limiter,
    held: Arc<Held>,
}

fn text(text: &str) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// Each tool is called once a minute. Its limit stands above or below the tool's attribute.
#[tool_router]
impl Library {
    #[tool]
    #[rate_limit(name = "below", period = 60, threshold = 1, limiter = self.limiter, key = 1)]
    async fn below(&self) -> Result<CallToolResult, ErrorData> {
        Ok(text("below"))
    }

    #[rate_limit(name = "above", period = 60, threshold = 1, limiter = self.limiter, key = 1)]
    #[tool]
    async fn above(&self) -> Result<CallToolResult, ErrorData> {
        Ok(text("above"))
    }

    #[tool]
    #[rate_limit(name = "json_below", period = 60, threshold = 1, limiter = self.limiter, key = text)]
    async fn json_below(
        &self,
        Parameters(Query { text }): Parameters<Query>,
    ) -> Result<Json<Found>, ErrorData> {
        Ok(Json(Found { hits: u32::try_from(text.len()).unwrap_or(u32::MAX) }))
    }

    #[rate_limit(name = "json_above", period = 60, threshold = 1, limiter = self.limiter, key = text)]
    #[tool]
    async fn json_above(
        &self,
        Parameters(Query { text }): Parameters<Query>,
    ) -> Result<Json<Found>, ErrorData> {
        Ok(Json(Found { hits: u32::try_from(text.len()).unwrap_or(u32::MAX) }))
    }

    #[tool]
    #[rate_limit(name = "own_below", period = 60, threshold = 1, limiter = self.limiter, key = 1)]
    async fn own_below(&self) -> Limited<String> {
        Ok("own_below".to_owned())
    }

    #[rate_limit(name = "own_above", period = 60, threshold = 1, limiter = self.limiter, key = 1)]
    #[tool]
    async fn own_above(&self) -> Limited<Json<Found>> {
        Ok(Json(Found { hits: 1 }))
    }

    #[rate_limit(name = "fallible", period = 60, threshold = 1, limiter = self.limiter, key = 1, fallible)]
    #[tool]
    async fn fallible(&self) -> String {
        "fallible".to_owned()
    }

    /// It takes as many units as the query has letters, and gives back all but one.
    #[tool]
    #[rate_limit(
        name = "settled",
        period = 60,
        threshold = 9,
        limiter = self.limiter,
        key = 1,
        cost = query.0.text.len(),
        settle = |out| u32::from(out.is_ok())
    )]
    async fn settled(&self, query: Parameters<Query>) -> Result<CallToolResult, ErrorData> {
        Ok(text(&query.0.text))
    }

    #[tool]
    #[rate_limit(name = "result_below", period = 60, threshold = 1, limiter = self.limiter, key = 1)]
    async fn result_below(&self) -> CallToolResult {
        text("result_below")
    }

    #[rate_limit(name = "result_above", concurrency = 1, limiter = self.limiter, key = 1)]
    #[tool]
    async fn result_above(&self) -> CallToolResult {
        self.held.stay().await;
        text("result_above")
    }

    #[tool]
    #[rate_limit(policy = BY_CALLER, limiter = self.limiter, key = mcp::caller(&context))]
    async fn by_caller(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        Ok("by_caller".to_owned())
    }
}

#[prompt_router]
impl Library {
    #[prompt]
    #[rate_limit(name = "prompt_below", period = 60, threshold = 1, limiter = self.limiter, key = 1)]
    async fn prompt_below(&self) -> Result<Vec<PromptMessage>, ErrorData> {
        Ok(vec![PromptMessage::new_text(Role::User, "prompt_below")])
    }

    #[rate_limit(name = "prompt_above", period = 60, threshold = 1, limiter = self.limiter, key = text)]
    #[prompt]
    async fn prompt_above(
        &self,
        Parameters(Query { text }): Parameters<Query>,
    ) -> Result<Vec<PromptMessage>, ErrorData> {
        Ok(vec![PromptMessage::new_text(Role::User, text)])
    }
}

#[tool_handler]
#[prompt_handler]
impl ServerHandler for Library {}

impl Library {
    fn new(limiter: Limiter) -> Self {
        Self { limiter, held: Arc::default() }
    }

    /// Serves a session in this process, as on stdio. Returns its client.
    async fn session(self) -> Client {
        let (ours, theirs) = tokio::io::duplex(4_096);
        tokio::spawn(async { self.serve(theirs).await.unwrap().waiting().await });
        Client(().serve(ours).await.unwrap())
    }
}

struct Client(RunningService<RoleClient, ()>);

impl Client {
    async fn tool(
        &self,
        name: &'static str,
        arguments: JsonObject,
    ) -> Result<CallToolResult, ServiceError> {
        let request = CallToolRequestParams::new(name).with_arguments(arguments);
        self.0.call_tool(request).await
    }

    async fn prompt(&self, name: &str, arguments: JsonObject) -> Result<String, ServiceError> {
        let request = GetPromptRequestParams::new(name).with_arguments(arguments);
        let prompt = self.0.get_prompt(request).await?;
        Ok(prompt.messages[0].content.as_text().unwrap().text.clone())
    }
}

fn error<T: std::fmt::Debug>(answer: Result<T, ServiceError>) -> ErrorData {
    match answer {
        Err(ServiceError::McpError(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// The error of a limit of one call a minute.
fn assert_refused<T: std::fmt::Debug>(answer: Result<T, ServiceError>, name: &str) {
    let ErrorData { code, message, data } = error(answer);
    let data = data.unwrap();
    let wait = data["retryAfterMs"].as_u64().unwrap();
    assert!((50_000..=60_000).contains(&wait), "{wait}");
    assert_eq!(data, json!({ "retryAfterMs": wait, "limit": 1, "remaining": 0 }));
    assert_eq!(code.0, 429);
    let (why, advice) = message.split_once("; ").unwrap();
    let exceeded = format!("rate limit `{name}` exceeded: at most 1 per 60s, retry after ");
    assert!(why.starts_with(&exceeded), "{message}");
    assert_eq!(advice, format!("wait {} s, then repeat this call", wait.div_ceil(1_000)));
}

fn content(result: &CallToolResult) -> (bool, &str) {
    (result.is_error == Some(true), &result.content[0].as_text().unwrap().text)
}

#[tokio::test]
async fn tools_and_prompts_are_limited_in_both_orders_of_the_attributes() {
    let client = Library::new(Limiter::in_memory()).session().await;
    let query = || object!({ "text": "abc" });
    for name in ["below", "above", "own_below", "fallible"] {
        let first = client.tool(name, JsonObject::new()).await.unwrap();
        assert_eq!(content(&first), (false, name));
        assert_refused(client.tool(name, JsonObject::new()).await, name);
    }
    for (name, arguments, hits) in [
        ("json_below", query(), 3),
        ("json_above", query(), 3),
        ("own_above", JsonObject::new(), 1),
    ] {
        let first = client.tool(name, arguments.clone()).await.unwrap();
        assert_eq!(first.structured_content, Some(json!({ "hits": hits })));
        assert_refused(client.tool(name, arguments).await, name);
    }
    for (name, arguments, expected) in
        [("prompt_below", JsonObject::new(), "prompt_below"), ("prompt_above", query(), "abc")]
    {
        assert_eq!(client.prompt(name, arguments.clone()).await.unwrap(), expected);
        assert_refused(client.prompt(name, arguments).await, name);
    }
    // On stdio the session is the caller.
    for code in [None, None, Some(429)] {
        let answer = client.tool("by_caller", JsonObject::new()).await;
        assert_eq!(answer.err().map(|it| error(Err::<(), _>(it)).code.0), code);
    }
}

#[tokio::test]
async fn a_tool_error_is_one_that_the_model_reads() {
    let library = Library::new(Limiter::in_memory());
    let (held, client) = (Arc::clone(&library.held), library.session().await);
    let first = client.tool("result_below", JsonObject::new()).await.unwrap();
    assert_eq!(content(&first), (false, "result_below"));
    let refused = client.tool("result_below", JsonObject::new()).await.unwrap();
    let (is_error, message) = content(&refused);
    assert!(is_error && message.ends_with(" s, then repeat this call"), "{message}");

    let [first, refused] =
        held.beside(async || client.tool("result_above", JsonObject::new()).await.unwrap()).await;
    assert_eq!(content(&first), (false, "result_above"));
    let (is_error, message) = content(&refused);
    let busy = "rate limit `result_above` is busy: at most 1 in flight; ";
    assert!(is_error && message.starts_with(busy), "{message}");
}

#[tokio::test]
async fn the_cost_of_a_tool_is_settled_by_its_answer() {
    let client = Library::new(Limiter::in_memory()).session().await;
    for length in [9, 8, 7] {
        let text = "a".repeat(length);
        let answer = client.tool("settled", object!({ "text": text })).await.unwrap();
        assert_eq!(content(&answer), (false, &*text));
    }
    let refused = error(client.tool("settled", object!({ "text": "aaaaaaa" })).await);
    assert_eq!(refused.data.unwrap()["remaining"], 6);
    let too_large = error(client.tool("settled", object!({ "text": "aaaaaaaaaa" })).await);
    let message = "rate limit `settled` never admits 10 units at once: at most 9 per 60s; ask for less in one call";
    assert_eq!((too_large.code.0, &*too_large.message, too_large.data), (422, message, None));
}

#[tokio::test]
async fn each_error_has_its_code_and_says_what_to_do() {
    let limiter = Limiter::in_memory();
    let lost = Limiter::builder().on_store_error(OnStoreError::Deny);
    let lost = lost.connect_lazy("redis://127.0.0.1:1/").unwrap();
    limiter.overrides().here().set((BY_CALLER.name(), "shut-out"), Override::new().deny()).unwrap();
    let shut_out = limiter.check(&BY_CALLER, "shut-out").await.unwrap_err();
    assert!(matches!(shut_out, RateLimitError::Denied(_)));
    let invalid = Policy::sliding_window("invalid", Duration::ZERO, 1);
    let undecided = lost.check(&BY_CALLER, "alice").await.unwrap_err();
    let RateLimitError::Unavailable(error) = &undecided else { panic!("{undecided}") };
    // A guess, to the nearest second in the text.
    let guess = error.retry_after();
    let (millis, seconds) = (guess.as_micros().div_ceil(1_000), guess.as_secs_f64().round());
    let wait = format!("wait {seconds} s, then repeat this call");
    let data = Some(json!({ "retryAfterMs": u64::try_from(millis).unwrap() }));
    for (error, code, advice, data) in [
        (shut_out, 403, "do not repeat this call", None),
        (undecided, 503, &*wait, data),
        (limiter.check(&invalid, 1).await.unwrap_err(), 500, "do not repeat this call", None),
    ] {
        let text = format!("{error}; {advice}");
        let error = ErrorData::from(error);
        assert_eq!((error.code.0, &*error.message, error.data), (code, &*text, data));
    }
}

/// Calls the tool as a client without a session. Returns the code of its error, if it is one.
async fn call(url: &str, fields: &[(&str, &str)]) -> Option<i64> {
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "by_caller" },
    });
    let request = client().post(url).header("accept", "application/json, text/event-stream");
    let request =
        fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let response = request.json(&body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let answer: Value = response.json().await.unwrap();
    answer["error"]["code"].as_i64()
}

#[tokio::test]
async fn over_http_the_caller_is_that_of_the_identity_layer_and_no_field_makes_a_new_one() {
    let events = Lines::default();
    let _guard = listen(events.clone());
    let limiter = Limiter::in_memory();
    let service = |library: &Library| {
        let library = library.clone();
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true);
        let sessions = NeverSessionManager::default().into();
        StreamableHttpService::new(move || Ok(library.clone()), sessions, config)
    };
    let library = Library::new(limiter.clone());
    let app = Router::new().nest_service("/mcp", service(&library)).layer(by_user());
    let url = format!("http://{}/mcp", serve(app).await);
    for (user, codes) in [("alice", [None, None, Some(429)]), ("bob", [None, None, Some(429)])] {
        for (session, code) in ["1", "2", "3"].into_iter().zip(codes) {
            let fields = [("x-user", user), ("mcp-session-id", session)];
            assert_eq!(call(&url, &fields).await, code, "{user}");
        }
        assert!(limiter.peek(&BY_CALLER, Caller::digest(user)).await.is_err());
    }

    // Without the layer all requests share one caller.
    let app = Router::new().nest_service("/mcp", service(&library));
    let url = format!("http://{}/mcp", serve(app).await);
    for (session, code) in [("1", None), ("2", None), ("3", Some(429))] {
        assert_eq!(call(&url, &[("x-user", "carol"), ("mcp-session-id", session)]).await, code);
    }
    assert!(limiter.peek(&BY_CALLER, Caller::shared()).await.is_err());
    let warnings = events.all();
    let warnings = warnings.iter().filter(|it| it.contains("an MCP request without an identity"));
    assert_eq!(warnings.count(), 1);
}

#[tokio::test]
async fn over_http_with_sessions_the_caller_is_the_same() {
    let library = Library::new(Limiter::in_memory());
    let service = StreamableHttpService::new(
        move || Ok(library.clone()),
        LocalSessionManager::default().into(),
        StreamableHttpServerConfig::default(),
    );
    let identity = Identity::header("authorization");
    let app = Router::new().nest_service("/mcp", service).layer(IdentityLayer::new(identity));
    let url = format!("http://{}/mcp", serve(app).await);
    let session = async |key: &str| {
        let config =
            StreamableHttpClientTransportConfig::with_uri(&*url).auth_header(key.to_owned());
        Client(().serve(StreamableHttpClientTransport::from_config(config)).await.unwrap())
    };
    for key in ["alice", "bob"] {
        let (first, second) = (session(key).await, session(key).await);
        for client in [&first, &second] {
            assert!(client.tool("by_caller", JsonObject::new()).await.is_ok());
        }
        for client in [first, second] {
            let refused = error(client.tool("by_caller", JsonObject::new()).await);
            assert_eq!(refused.code.0, 429);
            client.0.cancel().await.unwrap();
        }
    }
}
