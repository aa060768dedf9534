//! A limiter on Redis keeps its keys in order, and its promises in every process and through every outage.

mod connect;
mod crowded;
mod deny_cache;
mod fair_permits;
mod foreign_state;
mod formats;
mod in_flight;
mod keys;
mod lease;
mod lease_history;
mod line;
mod line_of_processes;
mod local_share;
mod outages;
mod overridden_line;
mod own_connection;
mod processes;
mod runtimes;
mod settle;
mod shutdown;
mod store;
mod two_budgets;
mod under_load;
mod waiting_for_redis;
