//! Services under limits identify their callers, check the right requests, and report limits in their
//! responses.

mod address;
mod blocked_worker_on_actix;
mod by_request;
mod by_request_on_actix;
mod client;
mod dry_run;
mod forwarding_headers;
mod gate;
mod handlers_in_flight;
mod header_fields;
mod hostile_requests;
mod in_flight;
mod lost_refusals;
mod lost_refusals_on_actix;
mod on_actix;
mod on_axum;
mod on_tonic;
mod public_handlers;
mod public_handlers_on_actix;
mod public_handlers_on_tonic;
mod retrying_clients;
mod support;
mod trusted_proxies;
mod without_a_layer;
mod without_a_wait;
