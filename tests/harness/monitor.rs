//! The commands on one key of a server, as `MONITOR` tells them with the server's clock.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::mpsc::{self, Receiver},
    thread,
};

use super::RedisServer;

/// The commands of a server from a moment on.
#[derive(Debug)]
pub struct Monitor(Receiver<String>);

/// The result of a replay of the permits of a caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The permits that were taken.
    pub taken: usize,
    /// The most unexpired at one time.
    pub most: usize,
    /// The commands after which there were more than there may be.
    pub faults: Vec<String>,
}

impl Monitor {
    /// Starts to listen.
    pub fn start(server: &RedisServer) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        stream.write_all(b"MONITOR\r\n").expect("a command");
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next().expect("an answer").expect("a line");
        assert_eq!(first, "+OK");
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self(receiver)
    }

    /// Returns the stamps of all charges under a key that were not given back, in ascending order.
    /// Such a charge is a member of a sorted set with a score above 0. It may have moved. The turn
    /// of a state that counts, which has a colon, gets a score below 0 when it has passed.
    pub fn stamps(&self, key: &str) -> Vec<u64> {
        stamps(self.0.try_iter(), key)
    }

    /// Replays the commands that have arrived on the permits under a key. There may never be more
    /// than `permits` that have not expired by the server's clock.
    pub fn replay(&self, key: &str, permits: usize) -> Replayed {
        replay(self.0.try_iter(), key, permits)
    }
}

/// Returns the time of a command in microseconds, and its words.
fn parse(line: &str) -> Option<(u64, Vec<&str>)> {
    let (before, command) = line.split_once("] ")?;
    let words = command.split('"').filter(|word| *word != " " && !word.is_empty());
    let time = before.split(' ').next()?.trim_start_matches('+');
    Some((time.replace('.', "").parse().expect("microseconds"), words.collect()))
}

fn stamps(lines: impl Iterator<Item = String>, key: &str) -> Vec<u64> {
    let (mut charges, mut removed) = (HashMap::new(), HashMap::new());
    // The charges that have ever had a stamp, and the stamps of those that were given back by it.
    let (mut stamped, mut left) = (HashMap::<u64, Vec<String>>::new(), HashMap::new());
    for line in lines {
        let Some((_, words)) = parse(&line) else { continue };
        match &words[..] {
            ["ZADD", named, pairs @ ..] if *named == key => {
                for pair in pairs.chunks(2) {
                    let name = name_of(pair[1]);
                    let is_turn = name != pair[1];
                    let score = if is_turn { pair[0].trim_start_matches('-') } else { pair[0] };
                    if let Ok(stamp) = score.parse::<u64>()
                        && stamp > 0
                    {
                        removed.remove(name);
                        charges.insert(name.to_owned(), stamp);
                        stamped.entry(stamp).or_default().push(name.to_owned());
                    }
                }
            }
            ["ZREM", named, members @ ..] if *named == key => {
                for name in members.iter().map(|it| name_of(it)) {
                    removed.extend(charges.remove(name).map(|stamp| (name.to_owned(), stamp)));
                }
            }
            // A settle at 0 units of a state that counts.
            ["EVALSHA", _, "2", named, _, "2", _, _, _, detail, ..] if *named == key => {
                let numbers: Vec<_> = detail.split(' ').collect();
                let [at, "0", _, _, number, _] = numbers[..] else { continue };
                left.insert(number.to_owned(), at.parse::<u64>().expect("microseconds"));
            }
            _ => {}
        }
    }
    for at in left.into_values() {
        // A turn that had come is given back in the counts, and not removed. It may have moved
        // meanwhile.
        let names = stamped.get(&at).map_or(&[][..], |names| names);
        if names.iter().any(|name| removed.remove(name).is_some()) {
            continue;
        }
        let unmoved = names.iter().find(|name| charges.get(*name) == Some(&at));
        let moved = || names.iter().find(|name| charges.contains_key(*name));
        if let Some(name) = unmoved.or_else(moved) {
            charges.remove(name);
        }
    }
    let mut stamps: Vec<_> = charges.into_values().collect();
    stamps.sort_unstable();
    stamps
}

/// Returns the name of a charge: of the turn of a state that counts, the cost and the number.
fn name_of(member: &str) -> &str {
    let ends = member.match_indices(':').nth(1).map(|(at, _)| at);
    ends.map_or(member, |at| &member[..at])
}

fn replay(lines: impl Iterator<Item = String>, key: &str, permits: usize) -> Replayed {
    let (mut held, mut replayed) = (HashMap::<String, u64>::new(), Replayed::default());
    // The time from which the key is gone, which no command says.
    let mut expires = u64::MAX;
    for line in lines {
        let Some((now, words)) = parse(&line) else { continue };
        let deadline = |word: &str| word.parse::<u64>().expect("a deadline");
        if now >= expires {
            held.clear();
        }
        if held.is_empty() {
            expires = u64::MAX;
        }
        match &words[..] {
            [name] if name.eq_ignore_ascii_case("FLUSHALL") => held.clear(),
            [_, named, ..] if *named != key => continue,
            ["ZADD", _, "XX", "CH", renewed @ ..] => {
                for pair in renewed.chunks(2) {
                    if let Some(it) = held.get_mut(pair[1]) {
                        *it = deadline(pair[0]);
                    }
                }
            }
            ["ZADD", _, "XX", at, id] => {
                if let Some(it) = held.get_mut(*id) {
                    *it = deadline(at);
                }
            }
            ["ZADD", _, at, id] => {
                replayed.taken += 1;
                held.insert((*id).to_owned(), deadline(at));
            }
            ["PEXPIRE", _, millis] => expires = now + 1_000 * deadline(millis),
            ["ZREM", _, id] => drop(held.remove(*id)),
            ["ZREMRANGEBYSCORE", _, _, until] => held.retain(|_, it| *it > deadline(until)),
            _ => continue,
        }
        let unexpired = held.values().filter(|deadline| **deadline > now).count();
        if unexpired > permits {
            replayed.faults.push(format!("{unexpired} permits at {now}: {line}"));
        }
        replayed.most = replayed.most.max(unexpired);
    }
    replayed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replayed(commands: &[&str]) -> Replayed {
        let line = |(at, command): (usize, &&str)| format!("+10.00000{at} [0 lua] {command}");
        replay(commands.iter().enumerate().map(line), "c", 2)
    }

    #[test]
    fn the_stamps_are_those_of_charges_that_were_not_given_back_where_they_have_moved_to() {
        let commands = [
            r#""ZADD" "c" "30" "a" "20" "b" "-7" "g""#,
            r#""ZADD" "other" "5" "a""#,
            r#""ZREM" "c" "b" "x""#,
            r#""ZADD" "c" "40" "d" "-9" "g""#,
            r#""ZADD" "c" "35" "d""#,
            r#""ZREMRANGEBYSCORE" "c" "0" "30""#,
            r#""evalsha" "f" "1" "c""#,
            // Three turns of a state that counts: one moves and passes, and two are given back.
            r#""ZADD" "c" "60" "1:1:9" "60" "1:2:9" "60" "1:3:9""#,
            r#""ZREM" "c" "1:1:9""#,
            r#""ZADD" "c" "-50" "1:1:9@60""#,
            r#""EVALSHA" "f" "2" "c" "c:s" "2" "1" "0" "9" "60 0 9 1 4 1" "1""#,
            r#""ZREM" "c" "1:2:9""#,
            r#""ZADD" "c" "-60" "1:3:9""#,
            r#""EVALSHA" "f" "2" "c" "c:s" "2" "1" "0" "9" "60 0 9 1 5 1" "1""#,
            // One that is given back by the stamp that it had before it moved and passed.
            r#""ZADD" "c" "80" "1:4:9""#,
            r#""ZREM" "c" "1:4:9""#,
            r#""ZADD" "c" "-70" "1:4:9@80""#,
            r#""EVALSHA" "f" "2" "c" "c:s" "2" "1" "0" "9" "80 0 9 1 6 1" "1""#,
        ];
        let lines = commands.map(|command| format!("+1.000000 [0 lua] {command}"));
        assert_eq!(stamps(lines.into_iter(), "c"), [30, 35, 50]);
    }

    #[test]
    fn the_permits_of_a_key_that_has_expired_are_gone() {
        let [first, expires, renewed] = [
            r#""ZADD" "c" "10000009" "a""#,
            r#""PEXPIRE" "c" "0""#,
            r#""ZADD" "c" "XX" "10000009" "a""#,
        ];
        let others = [r#""ZADD" "c" "10000009" "b""#, r#""ZADD" "c" "10000009" "d""#];
        let commands = [&[first, expires, renewed], &others[..]].concat();
        assert_eq!(replayed(&commands).faults, [""; 0]);
        let commands = [&[first, renewed], &others[..]].concat();
        assert_eq!(replayed(&commands).faults.len(), 1);
        // With its last permit a key goes, and a new one does not expire with it.
        let gone = [first, r#""PEXPIRE" "c" "0""#, r#""ZREM" "c" "a""#];
        let commands = [&gone[..], &[first], &others].concat();
        assert_eq!(replayed(&commands).faults.len(), 1);
    }

    #[test]
    fn a_permit_beyond_the_number_is_a_fault_while_the_others_have_not_expired() {
        let two = [r#""ZADD" "c" "10000009" "a""#, r#""ZADD" "c" "10000003" "b""#];
        let third = r#""ZADD" "c" "10000009" "d""#;
        let commands = [&two[..], &[third]].concat();
        let Replayed { taken, most, faults } = replayed(&commands);
        assert_eq!((taken, most, faults.len()), (3, 3, 1));
        // The second has expired by then, was released, swept, or is under another key.
        let other = r#""ZADD" "o" "10000009" "d""#;
        for between in [
            vec![other, other],
            vec![r#""ZREM" "c" "b""#],
            vec![r#""ZREMRANGEBYSCORE" "c" "-inf" "10000003""#],
            vec![r#""FLUSHALL""#],
        ] {
            let commands = [&two[..], &between, &[third]].concat();
            assert_eq!(replayed(&commands).faults, [""; 0], "{between:?}");
        }
        // Renewed it has not, alone or with others; a permit that is gone is not renewed.
        for between in [
            r#""ZADD" "c" "XX" "10000009" "b""#,
            r#""ZADD" "c" "XX" "CH" "10000009" "a" "10000009" "b""#,
        ] {
            let commands = [&two[..], &[between, other, third]].concat();
            assert_eq!(replayed(&commands).faults.len(), 1, "{between}");
            let commands = [&two[..], &[r#""ZREM" "c" "b""#, between, third]].concat();
            assert_eq!(replayed(&commands).faults, [""; 0], "{between}");
        }
    }
}
