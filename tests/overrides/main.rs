//! An override takes effect at once in every process that follows it, and never by half.

mod dynamic_policies;
mod effects;
mod hostile_sources;
mod sources;
