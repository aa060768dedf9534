//! Every algorithm admits and refuses as it promises, in memory and on Redis alike, whatever callers send.

mod algorithms;
mod changes;
mod hostile_callers;
mod memory_store;
mod model;
mod precedents;
mod refund;
mod request;
mod too_large;
mod waiting;
