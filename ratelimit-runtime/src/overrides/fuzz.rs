//! Documents with any content: each is an error, or overrides that survive their own text and make
//! valid policies.

use std::time::Duration;

use super::{Override, callers::Identities, document};
use crate::policy::Policy;

const MINUTE: Duration = Duration::from_secs(60);
const POLICIES: [Policy; 5] = [
    Policy::sliding_window("p", MINUTE, 5),
    Policy::sliding_window("p", MINUTE, 5).tier(Duration::from_secs(3_600), 50).count_rejected(),
    Policy::sliding_counter("p", MINUTE, 5),
    Policy::fixed_window("p", MINUTE, 5),
    Policy::token_bucket("p", MINUTE, 5),
];

/// Asserts the property of the text as a document, and as one override.
pub(crate) fn assert_property(text: &str) {
    match document::parse(text, &Identities::default()) {
        Ok(layer) => {
            layer.iter().for_each(|(.., what)| make_policies(what));
        }
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
    match document::parse_one(text) {
        Ok(what) => make_policies(&what),
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
}

fn make_policies(what: &Override) {
    let text = what.to_string();
    assert_eq!(document::parse_one(&text).as_ref(), Ok(what), "{text}");
    for part in what.parts() {
        let _ = part.validate_standalone();
    }
    for policy in &POLICIES {
        let _ = what.validate_dynamic(policy);
        if let Ok(effective) = what.validate(policy, Some(1)) {
            assert_eq!(effective.validate(), Ok(()));
            // The callers' history is found under the same key.
            assert_eq!(effective.name(), policy.name());
            assert_eq!(effective.algorithm(), policy.algorithm());
        }
    }
}
