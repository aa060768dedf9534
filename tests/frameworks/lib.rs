//! Functions that other macros rewrite are limited, and clients of their protocols see the refusal.
#![cfg(test)]

mod attributes;
mod services;
