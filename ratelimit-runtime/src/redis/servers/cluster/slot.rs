//! The slot of a key, and the reply of `CLUSTER SLOTS`.

use std::collections::HashSet;

use crc::{CRC_16_XMODEM, Crc};
use redis::Value;

use crate::redis::transport::Address;

/// The number of slots of a cluster.
pub(super) const SLOTS: u16 = 16_384;

/// The most nodes of a cluster, as its specification has it.
const MAX_NODES: usize = 1_000;

/// Returns the slot of a key: that of its hash tag, the text between its first braces, or of all of
/// it.
/// <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>
pub(super) fn slot(key: &[u8]) -> u16 {
    const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);
    CRC.checksum(tag(key)) % SLOTS
}

fn tag(key: &[u8]) -> &[u8] {
    let rest = key.splitn(2, |byte| *byte == b'{').nth(1);
    let closed = rest.filter(|rest| rest.contains(&b'}'));
    let tag = closed.and_then(|rest| rest.split(|byte| *byte == b'}').next());
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// Adjacent slots and their primary.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::redis) struct Range {
    pub(in crate::redis) first: u16,
    pub(in crate::redis) last: u16,
    pub(in crate::redis) primary: Address,
}

/// Reads the reply of `CLUSTER SLOTS`: `[first, last, [host, port, ..], ..]` for each range, the
/// primary before its replicas. A node that reports no host is at `host`, to which the command was
/// sent. `None` for a reply of another kind, or of more than [`MAX_NODES`].
pub(in crate::redis) fn ranges(reply: &Value, host: &str) -> Option<Vec<Range>> {
    let Value::Array(ranges) = reply else { return None };
    if ranges.len() > usize::from(SLOTS) {
        return None;
    }
    let mut nodes = HashSet::new();
    ranges
        .iter()
        .map(|reply| {
            let range = range(reply, host)?;
            nodes.insert(range.primary.clone());
            (nodes.len() <= MAX_NODES).then_some(range)
        })
        .collect()
}

fn range(reply: &Value, own_host: &str) -> Option<Range> {
    let Value::Array(parts) = reply else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &parts[..] else {
        return None;
    };
    let [host, Value::Int(port), ..] = &primary[..] else { return None };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        Value::Nil => "",
        _ => return None,
    };
    // `?` stands for a host name that is to be announced and is not set.
    let host = if host.is_empty() || host == "?" { own_host } else { host };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    let primary = Address::new(host, u16::try_from(*port).ok()?)?;
    (first <= last && last < SLOTS).then_some(Range { first, last, primary })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{}{bar}"), 8_363);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())])
    }

    #[test]
    fn a_reply_names_the_primaries() {
        let host = |host: &str| Value::BulkString(host.as_bytes().to_vec());
        let reply = Value::Array(vec![
            Value::Array(vec![
                Value::Int(0),
                Value::Int(9),
                node(host("a"), 1),
                node(host("b"), 2),
            ]),
            Value::Array(vec![Value::Int(10), Value::Int(16_383), node(Value::Nil, 3)]),
        ]);
        let primary = |host: &str, port| Address { host: host.to_owned(), port };
        assert_eq!(
            ranges(&reply, "asked").unwrap(),
            [
                Range { first: 0, last: 9, primary: primary("a", 1) },
                Range { first: 10, last: 16_383, primary: primary("asked", 3) },
            ]
        );
    }

    #[test]
    fn a_reply_of_another_kind_is_none() {
        let range = |first, last, port| {
            let host = Value::BulkString(b"a".to_vec());
            Value::Array(vec![Value::Array(vec![
                Value::Int(first),
                Value::Int(last),
                node(host, port),
            ])])
        };
        assert!(ranges(&range(0, 1, 1), "").is_some());
        for reply in
            [range(2, 1, 1), range(0, 16_384, 1), range(-1, 1, 1), range(0, 1, 65_536), Value::Okay]
        {
            assert_eq!(ranges(&reply, ""), None);
        }
    }
}
