//! The examples and their services run by the commands in their first lines, and behave as documented.

mod examples;
mod figures;
mod llm_gateway;
mod printed;
mod services;
mod workflow;

/// Locked by tests whose programs ask a Redis server, and by those that start many programs. A service has
/// 100 ms for an answer: under the load of others it decides alone, and counts otherwise.
static MACHINE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
