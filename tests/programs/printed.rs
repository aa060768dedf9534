//! The tests that the README and the tutorial print pass.

mod readme {
    include!(concat!(env!("OUT_DIR"), "/readme_tests.rs"));
}

mod tutorial {
    include!(concat!(env!("OUT_DIR"), "/tutorial_tests.rs"));
}
