//! The fuzzed properties hold for every input of the corpus.

use crate::{
    corpus,
    properties::{address, arguments, identity, period},
};

#[test]
fn properties_hold_for_the_corpus() {
    let text = |property: fn(&str)| {
        move |bytes: &[u8]| property(str::from_utf8(bytes).expect("a corpus of text"))
    };
    corpus::each("address", address::holds);
    corpus::each("arguments", text(arguments::holds));
    corpus::each("identity", identity::holds);
    corpus::each("period", text(period::holds));
}
