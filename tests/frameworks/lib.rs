//! Functions that other macros rewrite are limited, and clients of their protocols see the refusal.
#![cfg(test)]

mod attributes;
mod bots;
mod discord;
mod http;
mod server;
mod services;

/// A part of the text of each refusal.
const REFUSED: &str = "exceeded: at most 1 per 30s";
