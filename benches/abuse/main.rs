//! `cargo run -p ratelimit-abuse [--features limitador] [-- failover]`
//!
//! Ten abuses of each limiter, as its documentation sets it up, and a Markdown table of what came
//! of them. A cell in bold type misses the bar of its abuse. All take some five minutes. They need
//! Redis, which `tests/run` installs.

mod abuses;
mod peer;
mod process;

use std::env;

use abuses::ABUSES;
use peer::Peer;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [peer, url, threshold, seconds] = arguments.as_slice() {
        let (threshold, seconds) = (threshold.parse(), seconds.parse());
        let limit = peer::Limit { threshold: threshold.unwrap(), seconds: seconds.unwrap() };
        return process::serve(Peer::named(peer), url, limit);
    }
    let names: Vec<_> = Peer::ALL.iter().map(|peer| peer.name()).collect();
    println!("| | bar | {} |", names.join(" | "));
    println!("|---|---|{}", "---|".repeat(names.len()));
    let is_wanted = |name: &str| arguments.first().is_none_or(|wanted| name.contains(&**wanted));
    for abuse in ABUSES.iter().filter(|abuse| is_wanted(abuse.name)) {
        let cells: Vec<_> = Peer::ALL
            .iter()
            .map(|&peer| {
                eprintln!("{}, {}", abuse.name, peer.name());
                (abuse.run)(peer).to_string()
            })
            .collect();
        println!("| {} | {} | {} |", abuse.name, abuse.bar, cells.join(" | "));
    }
}
