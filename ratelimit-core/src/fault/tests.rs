use super::*;

#[test]
fn a_duration_is_shown_in_its_largest_whole_unit() {
    const SECOND: u64 = 1_000_000;
    for (micros, text) in [
        (0, "0"),
        (999, "999 µs"),
        (1_500_000, "1500 ms"),
        (90 * SECOND, "90 s"),
        (5_400 * SECOND, "90 min"),
        (7_200 * SECOND, "2 h"),
        (400 * 86_400 * SECOND, "400 d"),
    ] {
        assert_eq!(Span(micros).to_string(), text);
    }
}
