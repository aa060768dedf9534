//! Services under limits: who the caller is, what the response says, and which requests are decided.

mod address;
mod gate;
mod header_fields;
mod hostile_requests;
mod on_actix;
mod on_axum;
mod on_tonic;
mod support;
