//! What compiles, and what the compiler says about what does not.

#[test]
fn good_handlers_compile_and_mistakes_are_told_at_their_token() {
    let cases = trybuild::TestCases::new();
    cases.pass("compile/ui/pass/*.rs");
    cases.compile_fail("compile/ui/fail/*.rs");
}
