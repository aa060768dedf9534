//! What holds for any input in parts that are not public, for the targets in `tests/fuzz`. As a test it
//! is fed their corpus.

#[cfg(test)]
#[path = "../../tests/fuzz/corpus.rs"]
mod corpus;

/// The key of a caller is read back as what it was made of.
pub fn key(bytes: &[u8]) {
    crate::key::fuzz::holds(bytes);
}

/// What stands in documents of overrides obeys the rules of policies, or is an error.
#[cfg(feature = "overrides")]
pub fn overrides(text: &str) {
    crate::overrides::fuzz::holds(text);
}

/// What a server replies is an answer or an error.
pub fn reply(bytes: &[u8]) {
    crate::redis::fuzz::holds(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_hold_for_the_corpus() {
        corpus::each("key", key);
        corpus::each("reply", reply);
        #[cfg(feature = "overrides")]
        corpus::each("overrides", |bytes| {
            overrides(str::from_utf8(bytes).expect("a corpus of text"));
        });
    }
}
