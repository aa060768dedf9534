//! Properties of private parts for any input, for the targets in `tests/fuzz`. The test runs them
//! on the targets' corpus.

#[cfg(test)]
#[path = "../../tests/fuzz/corpus.rs"]
mod corpus;

/// Asserts that the key of a caller is parsed back into its parts.
pub fn key(bytes: &[u8]) {
    crate::key::fuzz::assert_property(bytes);
}

/// Asserts that a document of overrides obeys the rules of policies, or is an error.
#[cfg(feature = "overrides")]
pub fn overrides(text: &str) {
    crate::overrides::fuzz::assert_property(text);
}

/// Asserts that a file of networks trusts exactly the proxies that it lists, or is an error.
#[cfg(feature = "web")]
pub fn proxies(text: &str) {
    crate::web::address::fuzz::assert_property(text);
}

/// Asserts that a reply of a server is an outcome or an error.
#[cfg(feature = "redis")]
pub fn reply(bytes: &[u8]) {
    crate::redis::fuzz::assert_property(bytes);
}

/// Asserts that the header fields of a remote service ask for a pause that follows from them, or
/// for none.
#[cfg(feature = "tower")]
pub fn told(text: &str) {
    crate::web::client::told::fuzz::assert_property(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_hold_for_the_corpus() {
        corpus::each("key", key);
        #[cfg(feature = "redis")]
        corpus::each("reply", reply);
        #[cfg(any(feature = "overrides", feature = "web"))]
        let text = |property: fn(&str)| {
            move |bytes: &[u8]| property(str::from_utf8(bytes).expect("a corpus of text"))
        };
        #[cfg(feature = "overrides")]
        corpus::each("overrides", text(overrides));
        #[cfg(feature = "web")]
        corpus::each("proxies", text(proxies));
        #[cfg(feature = "tower")]
        corpus::each("told", text(told));
    }
}
