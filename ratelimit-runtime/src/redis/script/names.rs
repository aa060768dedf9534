//! The arguments of a call of an algorithm, and the numbers of its reply. `arguments.lua` and
//! `names.lua` have the meaning of each.

use redis::{Cmd, Value};
use smallvec::SmallVec;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptOp {
    Peek = 0,
    Take = 1,
    Settle = 2,
    Advance = 3,
    Pause = 4,
    Turns = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Plain = 0,
    CountRejected = 1,
    Repeated = 2,
    Named = 4,
    Joined = 5,
}

/// The arguments before those of the tiers.
#[derive(Clone, Copy)]
pub(crate) struct Arguments<'d> {
    pub(crate) op: ScriptOp,
    pub(crate) cost: u64,
    /// A [`Mode`], or a score below 0.
    pub(crate) mode: i64,
    pub(crate) id: u64,
    pub(crate) detail: &'d [u64],
}

impl Arguments<'_> {
    /// Returns the arguments of an operation without units, under no tier.
    pub(crate) fn of(op: ScriptOp) -> Self {
        Self { op, cost: 0, mode: Mode::Plain as i64, id: 0, detail: &[0] }
    }

    /// Appends the arguments to a command, before those of this many deciding tiers.
    pub(crate) fn push(self, command: &mut Cmd, deciding: usize) {
        let Self { op, cost, mode, id, detail } = self;
        command.arg(op as u8).arg(cost).arg(mode).arg(id);
        let all = || detail.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        // The one number of most calls needs no memory.
        let detail = if let [number] = detail { command.arg(number) } else { command.arg(all()) };
        detail.arg(deciding);
    }
}

/// A number of a reply, by its index.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Verdict,
    Wait,
    Reset,
    Remaining,
    At,
    Tier,
    More,
    Birth,
    Entry,
    Allowed,
    Units,
}

/// The numbers of a reply.
pub(crate) struct Numbers(SmallVec<[i64; 9]>);

impl Numbers {
    /// Reads a reply that has numbers alone.
    pub(crate) fn read(reply: &Value) -> Option<Self> {
        let int = |value: &Value| if let Value::Int(int) = value { Some(*int) } else { None };
        reply.as_sequence()?.iter().map(int).collect::<Option<_>>().map(Self)
    }

    /// Returns a number, unless the reply lacks it.
    pub(crate) fn get(&self, name: Number) -> Option<i64> {
        self.0.get(name as usize).copied()
    }

    /// Returns a number, or the other one if the reply lacks it; none of a number below 0.
    pub(crate) fn number(&self, name: Number, otherwise: Option<u64>) -> Option<u64> {
        self.get(name).map_or(otherwise, |number| number.try_into().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the values that Lua gives to the names of a line with this name.
    fn values(name: &str) -> Vec<(String, String)> {
        let lua = concat!(include_str!("arguments.lua"), include_str!("names.lua"));
        let lines = lua.lines().filter_map(|it| it.strip_prefix("local "));
        let lists = lines.filter_map(|line| line.split_once(" = "));
        let all = lists.map(|(names, values)| {
            let list = |it: &str| it.split(", ").map(str::to_owned).collect::<Vec<_>>();
            list(names).into_iter().zip(list(values)).collect::<Vec<_>>()
        });
        let of = |list: &Vec<(String, String)>| list.iter().any(|(it, _)| it == name);
        all.into_iter().find(of).expect("a list with this name")
    }

    /// Returns a variant as Lua writes it.
    fn lua_name(variant: impl std::fmt::Debug) -> String {
        format!("{variant:?}").chars().fold(String::new(), |mut name, letter| {
            let starts = letter.is_uppercase() && !name.is_empty();
            name.extend(starts.then_some('_'));
            name.extend(letter.to_uppercase());
            name
        })
    }

    #[test]
    fn lua_has_the_same_names() {
        use Mode::{CountRejected, Joined, Named, Plain, Repeated};
        use Number::{
            Allowed, At, Birth, Entry, More, Remaining, Reset, Tier, Units, Verdict, Wait,
        };
        use ScriptOp::{Advance, Pause, Peek, Settle, Take, Turns};
        let numbers =
            [Verdict, Wait, Reset, Remaining, At, Tier, More, Birth, Entry, Allowed, Units];
        let index = |it: Number| (lua_name(it), (it as usize + 1).to_string());
        assert_eq!(values("VERDICT"), numbers.map(index));
        let text = |it: ScriptOp| (lua_name(it), format!("'{}'", it as u8));
        assert_eq!(values("PEEK"), [Peek, Take, Settle, Advance, Pause, Turns].map(text));
        let text = |it: Mode| (lua_name(it), format!("'{}'", it as u8));
        assert_eq!(values("PLAIN"), [Plain, CountRejected, Repeated, Named, Joined].map(text));
    }

    #[test]
    fn arguments_have_the_places_of_their_names_in_lua() {
        let mut command = Cmd::new();
        let detail = &[15, 25][..];
        let op = ScriptOp::Turns;
        Arguments { op, cost: 2, mode: -3, id: 4, detail }.push(&mut command, 6);
        command.arg(7);
        let sent: Vec<_> = command
            .args_iter()
            .map(|it| if let redis::Arg::Simple(it) = it { it.to_owned() } else { Vec::new() })
            .collect();
        let named = [
            ("OP", "5"),
            ("COST", "2"),
            ("MODE", "-3"),
            ("ID", "4"),
            ("DETAIL", "15 25"),
            ("DECIDING", "6"),
            ("TIERS", "7"),
        ];
        let places = values("OP");
        assert_eq!(places.len(), named.len());
        for ((name, index), (expected, value)) in places.iter().zip(named) {
            assert_eq!(name, expected);
            assert_eq!(sent[index.parse::<usize>().unwrap() - 1], value.as_bytes(), "{name}");
        }
    }
}
