//! The limits of a program are a text under review. Those of the examples are `examples/limits.lock`.

#![allow(
    clippy::duplicate_mod,
    dead_code,
    unreachable_pub,
    reason = "the examples are programs of their own"
)]

mod changes;
mod under_review;

#[path = "../../examples/actix/actix_service.rs"]
mod actix_service;
#[path = "../../examples/axum/admin.rs"]
mod admin;
#[path = "../../examples/axum/api_plans.rs"]
mod api_plans;
#[path = "../../examples/axum/axum_hello.rs"]
mod axum_hello;
#[path = "../../examples/axum/axum_service.rs"]
mod axum_service;
#[path = "../../examples/by_hand.rs"]
mod by_hand;
#[path = "../../examples/axum/dashboard.rs"]
mod dashboard;
#[path = "../../examples/degrade.rs"]
mod degrade;
#[path = "../../examples/axum/drill.rs"]
mod drill;
#[path = "../../examples/fleet.rs"]
mod fleet;
#[path = "../../examples/llm_gateway/gateway.rs"]
mod gateway;
#[path = "../../examples/hello.rs"]
mod hello;
#[path = "../../examples/axum/login.rs"]
mod login;
#[path = "../../examples/mail_tiers.rs"]
mod mail_tiers;
#[path = "../../examples/mcp/mcp.rs"]
mod mcp;
#[path = "../../examples/axum/metrics.rs"]
mod metrics;
#[path = "../../examples/outbound/outbound.rs"]
mod outbound;
#[path = "../../examples/overrides.rs"]
mod overrides;
#[path = "../../examples/plans.rs"]
mod plans;
#[path = "../../examples/outbound/reqwest_client.rs"]
mod reqwest_client;
#[path = "../../examples/testing/src/lib.rs"]
mod testing;
#[path = "../../examples/tonic/tonic_service.rs"]
mod tonic_service;
#[path = "../../examples/llm_gateway/upstream.rs"]
mod upstream;
#[path = "../../examples/axum/websocket.rs"]
mod websocket;
