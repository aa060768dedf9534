//! Operators see every decision, in events, metrics and stats, and no caller.

mod candidates;
mod events;
mod fleet;
mod gauges;
mod metrics;
mod ops;
mod refused;
mod spans;
mod stats;
mod warnings;
