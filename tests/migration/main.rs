//! Services that come from another limiter keep its counts, by the numbers that `guide::migration` gives. The differences
//! are those that it and `guide::comparison` state.

mod from_actix_governor;
mod from_actix_limitation;
mod from_governor;
mod from_limitador;
mod from_throttle_kit;
mod from_tower_governor;
mod from_trypema;

use std::{iter, net::SocketAddr};

/// Eight requests of each of three clients, in turn.
fn traffic() -> impl Iterator<Item = usize> {
    iter::repeat_n(0..3, 8).flatten()
}

/// The address of a client.
fn address(client: usize) -> SocketAddr {
    format!("192.0.2.{client}:4711").parse().unwrap()
}

/// The statuses of the traffic at five for each client: the first fifteen requests are served.
fn first_five_each() -> Vec<u16> {
    iter::repeat_n(200, 15).chain(iter::repeat_n(429, 9)).collect()
}

/// The status of a call that is admitted, or refused.
fn status(is_admitted: bool) -> u16 {
    if is_admitted { 200 } else { 429 }
}
