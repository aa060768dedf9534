//! An override takes effect at once in every process that follows it, and always as a whole.

mod callers;
mod callers_on_redis;
mod candidate_counts;
mod candidates;
mod dynamic_policies;
mod effects;
mod fleet;
mod history;
mod hostile_sources;
mod scales;
mod shares;
mod sources;
mod windows;
mod wrong_levers;
