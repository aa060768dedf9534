//! What the frameworks need, each by its feature. Only here is a framework named.

#[cfg(feature = "tonic")]
mod tonic;
