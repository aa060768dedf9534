//! The pause of a key.

use harness::schedule::Operation;

use super::{Mark, Script, Tiers};

/// The op, a script's first argument.
const PAUSE: u8 = 4;
const TURNS: u8 = 5;

impl Script {
    /// Pauses a key, and returns the times of charges after it, 0 for one that is gone.
    pub(crate) fn pause(
        &mut self,
        tiers: &Tiers,
        (key, length, charges): (&str, u64, &[(Operation, Mark)]),
        now: u64,
    ) -> Vec<u64> {
        let call = |sha1: &str, op: u8| {
            let mut call = redis::cmd("EVALSHA");
            call.arg(sha1).arg(4).arg(key).arg("");
            call.arg(now / 1_000_000).arg(now % 1_000_000).arg(op).arg(0).arg(0).arg(9);
            call
        };
        let mut pause = call(&self.sha1, PAUSE);
        pause.arg(length).arg(tiers.deciding).arg(&tiers.arguments);
        let ends: [i64; 2] = pause.query(&mut self.connection).expect("the end of the pause");
        assert!(ends[0] == 9 && ends[1] >= i64::try_from(now + length).unwrap(), "{ends:?}");
        let mut turns = call(&self.sha1, TURNS);
        let charges =
            charges.iter().map(|(operation, mark)| format!("{} {}", mark.of, operation.cost));
        turns.arg(charges.collect::<Vec<_>>().join(" "));
        let turns: Vec<i64> = turns.query(&mut self.connection).expect("turns");
        turns[1..].iter().map(|at| u64::try_from(*at).unwrap()).collect()
    }
}
