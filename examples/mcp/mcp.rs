//! `cargo run -p examples-mcp --example mcp`
//!
//! An MCP server with three tools: `search` has a limit for each caller, `report` one of calls in flight, and `ask`
//! one of tokens, which is settled at what the answer took. Without arguments the program is rmcp's client, and starts
//! itself as a server on stdio, `mcp stdio`. It prints
//!
//! ```text
//! search rust    3 books
//! search tokio   1 book
//! search axum    429 rate limit `search` exceeded: at most 2 per 3s, retry after 3s; wait .. s, then repeat this call
//!                {"limit":2,"remaining":0,"retryAfterMs":3000}
//! search axum    2 books
//! report a       printed
//! report b       tool error: rate limit `report` is busy: at most 1 in flight..
//! ask why        700 tokens
//! ask how        700 tokens
//! ask who        700 tokens
//! ask when       429 rate limit `ask` exceeded: at most 2500 per 3600s, retry after 3600s; wait .. s, then repeat this call
//!                {"limit":2500,"remaining":400,"retryAfterMs":3600000}
//! ```
//!
//! With an address it is the same server on HTTP, `mcp 127.0.0.1:3000`, where each known API key is a caller:
//!
//! ```text
//! $ cargo run -p examples-mcp --example mcp call http://127.0.0.1:3000/mcp key-of-alice
//! search rust    3 books
//! search tokio   1 book
//! search axum    429 rate limit `search` exceeded: at most 2 per 3s, retry after 3s; wait .. s, then repeat this call
//!                {"limit":2,"remaining":0,"retryAfterMs":3000}
//! search axum    2 books
//! ..
//! $ for text in rust tokio axum; do curl -s 127.0.0.1:3000/mcp -H 'authorization: Bearer key-of-bob' -H 'accept: application/json, text/event-stream' -H 'content-type: application/json' -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{"text":"'$text'"}}}'; echo; done
//! {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"3 books"}],"isError":false}}
//! {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"1 book"}],"isError":false}}
//! {"jsonrpc":"2.0","id":1,"error":{"code":429,"message":"rate limit `search` exceeded: at most 2 per 3s, retry after 3s; wait .. s, then repeat this call","data":{"limit":2,"remaining":0,"retryAfterMs":3000}}}
//! $ curl -i -H 'authorization: Bearer invented' http://127.0.0.1:3000/mcp
//! HTTP/1.1 401 Unauthorized
//! ```

use std::{env, error::Error, process::Stdio, time::Duration};

use axum::{
    Router,
    extract::Request,
    http::{HeaderValue, StatusCode},
    middleware::{self, Next},
    response::Response,
};
use ratelimit_runtime::{
    Limiter, install, rate_limit,
    web::{
        mcp,
        tower::{Identity, IdentityLayer},
    },
};
use rmcp::{
    ErrorData, Json, Peer, RoleClient, RoleServer, ServiceError, ServiceExt,
    handler::server::wrapper::Parameters,
    model::{CallToolRequestParams, CallToolResult, ContentBlock},
    schemars::{self, JsonSchema},
    serde_json::{self, Value},
    service::RequestContext,
    tool, tool_router,
    transport::{
        StreamableHttpClientTransport, StreamableHttpServerConfig,
        streamable_http_client::StreamableHttpClientTransportConfig,
        streamable_http_server::{StreamableHttpService, session::never::NeverSessionManager},
    },
};
use serde::{Deserialize, Serialize};
use tokio::{io, net::TcpListener, process::Command, time::sleep};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

type Done = Result<(), Box<dyn Error>>;

#[derive(Deserialize, JsonSchema)]
struct Query {
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct Answer {
    text: String,
    tokens: u32,
}

struct Library;

#[tool_router(server_handler)]
impl Library {
    /// Searches the library.
    #[tool]
    #[rate_limit(name = "search", period = 3, threshold = 2, key = mcp::caller(&context))]
    async fn search(
        &self,
        Parameters(Query { text }): Parameters<Query>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        Ok(match text.as_str() {
            "rust" => "3 books",
            "axum" => "2 books",
            _ => "1 book",
        }
        .to_owned())
    }

    /// Prints a report. The model reads a refusal as an error of the tool.
    #[tool]
    #[rate_limit(name = "report", concurrency = 1, key = "printer")]
    async fn report(&self) -> CallToolResult {
        sleep(Duration::from_millis(500)).await;
        CallToolResult::success(vec![ContentBlock::text("printed")])
    }

    /// Answers a question, by 1 000 tokens at most.
    #[tool]
    #[rate_limit(
        name = "ask",
        period = "1h",
        threshold = 2_500,
        key = mcp::caller(&context),
        cost = 1_000,
        settle = |out| out.as_ref().map_or(0, |answer| answer.0.tokens)
    )]
    async fn ask(
        &self,
        Parameters(Query { text }): Parameters<Query>,
        context: RequestContext<RoleServer>,
    ) -> Result<Json<Answer>, ErrorData> {
        Ok(Json(Answer { text: format!("{text}? because"), tokens: 700 }))
    }
}

/// Returns what a tool answers, and the data of a refusal.
fn shown(answer: Result<CallToolResult, ServiceError>) -> (String, Option<Value>) {
    match answer {
        Ok(result) => {
            let tokens = result.structured_content.as_ref().map(|it| &it["tokens"]);
            let text = result.content.first().and_then(ContentBlock::as_text);
            let text = text.map(|it| it.text.as_str()).unwrap_or_default();
            let text = tokens.map_or_else(|| text.to_owned(), |it| format!("{it} tokens"));
            (if result.is_error == Some(true) { format!("tool error: {text}") } else { text }, None)
        }
        Err(ServiceError::McpError(ErrorData { code, message, data })) => {
            (format!("{} {message}", code.0), data)
        }
        Err(error) => (error.to_string(), None),
    }
}

/// Calls a tool, and prints its answer. Returns the wait of a refusal.
async fn call(client: &Peer<RoleClient>, tool: &'static str, text: &str) -> Option<Duration> {
    let arguments = rmcp::object!({ "text": text });
    let request = CallToolRequestParams::new(tool).with_arguments(arguments);
    let (answer, data) = shown(client.call_tool(request).await);
    println!("{:<14} {answer}", format!("{tool} {text}"));
    let data = data?;
    println!("{:<14} {data}", "");
    Some(Duration::from_millis(data["retryAfterMs"].as_u64()?))
}

/// Calls the tools, and waits as long as a refusal asks for.
async fn session(client: &Peer<RoleClient>) {
    for text in ["rust", "tokio", "axum"] {
        if let Some(wait) = call(client, "search", text).await {
            sleep(wait).await;
            call(client, "search", text).await;
        }
    }
    // The second one is refused first: its line is printed when the first one's is.
    let second = async {
        sleep(Duration::from_millis(100)).await;
        let answer = client.call_tool(CallToolRequestParams::new("report")).await;
        sleep(Duration::from_millis(600)).await;
        println!("{:<14} {}", "report b", shown(answer).0);
    };
    tokio::join!(call(client, "report", "a"), second);
    for text in ["why", "how", "who", "when"] {
        call(client, "ask", text).await;
    }
}

/// Answers 401 for a missing or unknown key: whoever invents one gets no quota for it.
async fn authenticate(request: Request, next: Next) -> Result<Response, StatusCode> {
    match request.headers().get("authorization").map(HeaderValue::as_bytes) {
        Some(b"Bearer key-of-alice" | b"Bearer key-of-bob") => Ok(next.run(request).await),
        _ => Err(StatusCode::UNAUTHORIZED),
    }
}

#[tokio::main]
async fn main() -> Done {
    // On stdio, the output is the protocol's.
    let of_limiter = Targets::new().with_target("ratelimit_runtime", LevelFilter::INFO);
    tracing_subscriber::fmt().with_writer(std::io::stderr).finish().with(of_limiter).init();
    let arguments: Vec<_> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let mut server = Command::new(env::current_exe()?);
            let server = server.arg("stdio").stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut server = server.spawn()?;
            let streams = (server.stdout.take(), server.stdin.take());
            let (Some(output), Some(input)) = streams else { return Err("no pipes".into()) };
            let client = ().serve((output, input)).await?;
            session(&client).await;
            client.cancel().await?;
        }
        ["call", url, key] => {
            let config =
                StreamableHttpClientTransportConfig::with_uri(url).auth_header(key.to_owned());
            let client = ().serve(StreamableHttpClientTransport::from_config(config)).await?;
            session(&client).await;
            client.cancel().await?;
        }
        ["stdio"] => {
            install(Limiter::from_env().await?)?;
            Library.serve((io::stdin(), io::stdout())).await?.waiting().await?;
        }
        [address] => {
            install(Limiter::from_env().await?)?;
            let config = StreamableHttpServerConfig::default()
                .with_legacy_session_mode(false)
                .with_json_response(true);
            let sessions = NeverSessionManager::default().into();
            let service = StreamableHttpService::new(|| Ok(Library), sessions, config);
            let identity = Identity::header("authorization");
            let app = Router::new()
                .nest_service("/mcp", service)
                .layer(IdentityLayer::new(identity))
                .layer(middleware::from_fn(authenticate));
            let listener = TcpListener::bind(address).await?;
            println!("listening on http://{}/mcp", listener.local_addr()?);
            axum::serve(listener, app).await?;
        }
        _ => return Err("usage: mcp [stdio | ADDRESS | call URL KEY]".into()),
    }
    Ok(())
}
