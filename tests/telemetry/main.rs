//! Operators see every decision, in events and in metrics, and no caller.

mod events;
mod metrics;
