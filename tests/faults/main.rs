//! For every fault between a limiter and its Redis: calls end in time, none is counted twice, and the limiter
//! recovers. One file for each failing part.

mod announced;
#[cfg(target_os = "linux")]
mod batches;
mod clock;
mod cluster;
mod credentials;
#[cfg(target_os = "linux")]
mod hostile;
mod idle;
mod in_flight;
// A long test, which the test runner starts by name: early, and beside those that mostly wait.
mod in_turn;
mod late;
mod late_at_random;
mod leases;
mod line;
mod mixed;
mod network;
mod overrides;
mod sentinel;
mod server;
mod slots;
mod tls;
