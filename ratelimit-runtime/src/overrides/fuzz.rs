//! Whatever stands in a document: overrides that are written as they are read and make policies that
//! obey the rules, or an error.

use std::time::Duration;

use super::{Override, document};
use crate::policy::Policy;

const MINUTE: Duration = Duration::from_secs(60);
const POLICIES: [Policy; 5] = [
    Policy::sliding_window("p", MINUTE, 5),
    Policy::sliding_window("p", MINUTE, 5).tier(Duration::from_secs(3_600), 50).count_rejected(),
    Policy::sliding_counter("p", MINUTE, 5),
    Policy::fixed_window("p", MINUTE, 5),
    Policy::token_bucket("p", MINUTE, 5),
];

/// A whole document, and what is said of one limit.
pub(crate) fn holds(text: &str) {
    match document::read(text) {
        Ok(layer) => layer.limits.values().for_each(make_policies),
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
    match document::read_one(text) {
        Ok(what) => make_policies(&what),
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
}

fn make_policies(what: &Override) {
    let written = document::write_one(what);
    assert_eq!(document::read_one(&written).as_ref(), Ok(what), "{written}");
    let _ = what.judge_alone();
    for policy in &POLICIES {
        let _ = what.judge_late(policy);
        if let Ok(steered) = what.judge(policy, Some(1)) {
            assert_eq!(steered.validate(), Ok(()));
            // The callers' history is found under the same key.
            assert_eq!(steered.name(), policy.name());
            assert_eq!(steered.algorithm(), policy.algorithm());
        }
    }
}
