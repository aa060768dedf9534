//! The limits of a program are a text under review. Those of the examples are `examples/limits.lock`.

#![allow(dead_code, reason = "the examples are programs of their own")]

mod changes;
mod under_review;

#[path = "../../examples/actix/actix_service.rs"]
mod actix_service;
#[path = "../../examples/axum/api_plans.rs"]
mod api_plans;
#[path = "../../examples/axum/axum_hello.rs"]
mod axum_hello;
#[path = "../../examples/axum/axum_service.rs"]
mod axum_service;
#[path = "../../examples/llm_gateway/gateway.rs"]
mod gateway;
#[path = "../../examples/hello.rs"]
mod hello;
#[path = "../../examples/plans.rs"]
mod plans;
#[path = "../../examples/llm_gateway/upstream.rs"]
mod upstream;
