//! The examples and their services run by the commands in their first lines, and behave as documented.

mod examples;
mod figures;
mod llm_gateway;
mod printed;
mod services;
mod workflow;

/// Locked by tests that cannot share the machine: one builds a program, another counts answers that are due
/// within a deadline.
static MACHINE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
