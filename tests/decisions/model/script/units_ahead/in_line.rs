//! Calls beside those on lease: they are admitted or wait for a turn, move up, leave, or give their units back,
//! and their caller is reset.

use super::{KEY, Kind, LENGTH, Process, Use, World};

/// A call that is charged, and not on lease.
#[derive(Clone, Copy)]
pub(super) struct Charge {
    /// The place of its use.
    of_use: usize,
    units: u64,
    at: u64,
    /// The microsecond before which its state cannot have expired.
    ends: u64,
    birth: u64,
    id: u64,
}

/// The longest wait for a turn, and the longest line.
const PATIENCE: &str = "400000 8";

impl World {
    /// Returns the last charges, the newest first.
    fn recent(&self) -> impl Iterator<Item = usize> {
        (0..self.charges.len()).rev().take(40)
    }

    /// Takes units directly. If there is no room, the call may wait for its turn.
    pub(super) fn take(&mut self, units: u64, may_wait: bool) {
        let mut arguments = self.direct_arguments(units);
        if may_wait {
            PATIENCE.clone_into(&mut arguments[4]);
        }
        let script = self.take.clone();
        let reply = self.call(&script, "k:s", &arguments).expect("a reply");
        if reply[0] == 1 {
            let [reset, at] = [2, 4].map(|index| reply[index]);
            // Without an id of its own in the reply, the call's is that of its entry.
            let [birth, id] = [(7, 0), (8, 400 * self.calls)]
                .map(|(index, otherwise)| reply.get(index).copied().unwrap_or(otherwise));
            let of_use = self.uses.len();
            self.uses.push(Use::of(units, at));
            self.charges.push(Charge { of_use, units, at, ends: at + reset, birth, id });
        }
    }

    /// Lets the first waiting call move up.
    pub(super) fn advance(&mut self) {
        let ahead = self.recent().filter(|it| self.charges[*it].at > self.now);
        let Some(first) = ahead.min_by_key(|it| self.charges[*it].at) else { return };
        let Charge { of_use, units, at, ends, birth, id } = self.charges[first];
        let mut arguments = self.direct_arguments(units);
        let (of, told) = match self.kind {
            Kind::Sliding => (id, format!("{at} {birth} 0")),
            _ => (at, format!("{at} {birth} 0")),
        };
        for (index, argument) in [(0, "3"), (3, &of.to_string()), (4, &told)] {
            argument.clone_into(&mut arguments[index]);
        }
        let script = self.take.clone();
        let reply = self.call(&script, "k:s", &arguments).expect("a reply");
        let [1, moved, _, _] = reply[..] else { panic!("the turn is gone: {reply:?}") };
        assert!(moved <= at, "{moved} after {at}");
        self.uses[of_use].at = moved;
        self.charges[first].at = moved;
        self.charges[first].ends = ends - (at - moved);
    }

    /// Gives back the units of a recent call, which may still wait.
    pub(super) fn give_back(&mut self) {
        let recent: Vec<_> = self.recent().collect();
        let Some(one) = self.rng.choice(recent) else { return };
        let Charge { of_use, units, at, ends, birth, id } = self.charges.remove(one);
        let mut arguments = self.direct_arguments(units);
        let (of, number) = if self.kind == Kind::Sliding { (id, 0) } else { (birth, self.calls) };
        let detail = format!("{at} 0 {birth} {ends} {number} 60000000");
        for (index, argument) in [(0, "2"), (3, &of.to_string()), (4, &detail), (5, "1")] {
            argument.clone_into(&mut arguments[index]);
        }
        arguments.truncate(6 + self.direct_tier(0).len());
        let script = self.take.clone();
        self.call(&script, "k:s", &arguments).expect("a reply");
        if matches!(self.kind, Kind::Bucket(..)) && at <= self.now {
            self.uses.push(Use { at: self.now, units: 0, returned: units });
        } else {
            self.uses[of_use].units = 0;
        }
    }

    /// Forgets the caller. All limiters use no units of their leases any more, and give them back later.
    pub(super) fn reset(&mut self, processes: &mut [Process]) {
        let (used, found) = std::mem::take(&mut self.before);
        let used = used + self.uses.iter().map(|it| it.units).sum::<u64>();
        self.before = (used, found.or_else(|| self.fault()));
        let () = redis::cmd("DEL").arg(KEY).query(&mut self.connection).expect("a reset");
        self.uses.clear();
        self.charges.clear();
        self.starts.iter_mut().for_each(Vec::clear);
        for lease in processes.iter_mut().filter_map(|process| process.lease.as_mut()) {
            lease.allowed = 0;
        }
        self.now += self.rng.u64(1..LENGTH);
    }

    /// Returns the arguments of a call under the policy of direct calls.
    fn direct_arguments(&mut self, units: u64) -> Vec<String> {
        let mut arguments = self.arguments(units);
        arguments.truncate(6);
        (0..self.tiers.len()).for_each(|index| arguments.extend(self.direct_tier(index)));
        arguments.iter().map(u64::to_string).collect()
    }

    /// Returns the arguments of a tier of that policy.
    fn direct_tier(&self, index: usize) -> Vec<u64> {
        let mut tier = self.tier(index);
        if let Kind::Bucket(burst, true) = self.kind {
            tier[2] = burst * tier[0];
        }
        tier
    }
}
