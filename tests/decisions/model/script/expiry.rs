//! The expiry of keys by the clock of a test, which they outlive.

use harness::schedule::{CALLERS, Kind, Schedule};

use super::Script;

/// Returns the text that computes an expiry, which a script of a window has once.
pub(super) fn shipped(kind: Kind) -> String {
    let is_log = kind.has_names() || kind == Kind::SingleUnits;
    let lasts = if is_log { "keep" } else { "lasts" };
    format!("local ttl = string.format('%d', math.floor({lasts} / 1000) + 999)\n")
}

/// Returns the text in place of the shipped one. Beside a key, another one has the microsecond at
/// which it expires.
pub(super) fn recorded(shipped: &str, time: &str) -> String {
    let record = record(time, "ttl");
    format!("{shipped}{record}\nttl = '1000000000000'\n")
}

/// Returns the text in place of the expiry of a log on its straight way, which the call brings.
pub(super) fn recorded_straight(time: &str) -> String {
    record(time, "ARGV[DETAIL]")
}

fn record(time: &str, lasts: &str) -> String {
    let expires = format!("string.format('%.0f', time[1] * 1000000 + time[2] + {lasts} * 1000)");
    format!("do local time = {time} redis.call('SET', KEYS[1] .. ':x', {expires}) end")
}

impl Script {
    /// Asserts that no key expires before the state of its caller is equal to an empty one.
    pub(crate) fn assert_kept(&mut self, schedule: &Schedule, seed: u64) {
        if self.kind == Kind::InFlight {
            return;
        }
        let keys: Vec<_> = (0..CALLERS).map(|caller| format!("{caller}:x")).collect();
        let times = redis::cmd("MGET").arg(keys).query(&mut self.connection);
        let times: Vec<Option<u64>> = times.expect("times");
        for (caller, expires) in times.into_iter().enumerate() {
            let (ends, expires) = (schedule.ends(caller), expires.unwrap_or_default());
            let is_kept = ends <= schedule.now() || ends <= expires;
            assert!(is_kept, "MODEL_SEED={seed}: {caller} counts until {ends}, not {expires}");
        }
    }
}
