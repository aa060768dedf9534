//! Every algorithm admits and refuses as promised, in memory and on Redis alike, for any input of callers.

mod algorithms;
mod blocks;
mod calendar;
mod changes;
mod expiry;
mod hostile_callers;
mod in_flight;
mod lease;
mod leave;
mod line;
mod memory_store;
mod model;
mod overridden_line;
mod pause;
mod permit_queue;
mod precedents;
mod refund;
mod request;
mod settle;
mod together;
mod too_large;
mod units_in_flight;
mod waiting;
mod warned;
mod zones;
