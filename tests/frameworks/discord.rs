//! Commands of a bot on Discord, whose gateway is a server of the test.

use axum::{
    Json, Router,
    extract::ws::{Message, WebSocket, WebSocketUpgrade},
    routing::{any, get, post},
};
use poise::{
    Framework, FrameworkOptions, PrefixFrameworkOptions,
    serenity_prelude::{ClientBuilder, GatewayIntents, HttpBuilder},
};
use ratelimit_runtime::rate_limit;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc};

use crate::REFUSED;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Context<'a> = poise::Context<'a, (), Failure>;

#[poise::command(prefix_command)]
#[rate_limit(period = 30, threshold = 1, key = context.author().id.get())]
async fn below(context: Context<'_>) -> Result<(), Failure> {
    context.say("hello").await?;
    Ok(())
}

#[rate_limit(period = 30, threshold = 1, key = context.author().id.get())]
#[poise::command(prefix_command)]
async fn above(context: Context<'_>) -> Result<(), Failure> {
    context.say("hello").await?;
    Ok(())
}

fn user(id: &str) -> Value {
    json!({"id": id, "username": "alice", "discriminator": "0001", "avatar": null})
}

fn message(content: &str) -> Value {
    json!({
        "id": "9", "channel_id": "8", "author": user("7"), "content": content, "type": 0,
        "timestamp": "2026-11-28T12:00:00Z", "edited_timestamp": null, "tts": false,
        "mention_everyone": false, "mentions": [], "mention_roles": [], "attachments": [],
        "embeds": [], "pinned": false,
    })
}

/// Connects a bot, and sends it four messages of one user.
async fn gateway(mut socket: WebSocket, address: String) {
    let event = |number, name, data| json!({"op": 0, "s": number, "t": name, "d": data});
    let ready = json!({
        "v": 10, "user": user("1"), "guilds": [], "session_id": "a", "resume_gateway_url": address,
        "application": {"id": "1", "flags": 0},
    });
    let hello = json!({"op": 10, "d": {"heartbeat_interval": 45_000}});
    let mut events = vec![hello, event(1, "READY", ready)];
    let commands = ["!below", "!below", "!above", "!above"].into_iter().zip(2..);
    events.extend(commands.map(|(text, number)| event(number, "MESSAGE_CREATE", message(text))));
    for event in events {
        socket.send(Message::Text(event.to_string().into())).await.unwrap();
    }
    while socket.recv().await.is_some() {}
}

#[tokio::test]
async fn a_refusal_is_what_the_bot_says_in_both_orders() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let url = format!("ws://{address}");
    let (said, mut says) = mpsc::unbounded_channel();
    let gateway_url = json!({"url": url});
    let say = async move |Json(answer): Json<Value>| {
        let content = answer["content"].as_str().unwrap();
        said.send(content.to_owned()).unwrap();
        Json(message(content))
    };
    let discord = Router::new()
        .route("/", any(async move |it: WebSocketUpgrade| it.on_upgrade(|it| gateway(it, url))))
        .route("/api/v10/gateway", get(async move || Json(gateway_url)))
        .route("/api/v10/users/@me", get(async || Json(user("1"))))
        .route("/api/v10/channels/8/messages", post(say));
    tokio::spawn(async { axum::serve(listener, discord).await });

    let prefix_options = PrefixFrameworkOptions { prefix: Some("!".into()), ..Default::default() };
    let commands = vec![below(), above()];
    let options = FrameworkOptions { commands, prefix_options, ..Default::default() };
    let bot = Framework::builder().options(options).initialize_owners(false);
    let bot = bot.setup(|_, _, _| Box::pin(async { Ok(()) })).build();
    let http = HttpBuilder::new("token").proxy(format!("http://{address}"));
    let http = http.ratelimiter_disabled(true).build();
    let intents = GatewayIntents::non_privileged() | GatewayIntents::MESSAGE_CONTENT;
    let mut client = ClientBuilder::new_with_http(http, intents).framework(bot).await.unwrap();
    let bot = tokio::spawn(async move { client.start().await });
    let mut refusals = 0;
    for _ in 0..4 {
        let said = says.recv().await.unwrap();
        assert!(said == "hello" || said.contains(REFUSED), "{said}");
        refusals += u32::from(said != "hello");
    }
    bot.abort();
    assert_eq!(refusals, 2);
}
