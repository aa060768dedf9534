//! The search of a time.

/// The first time from which there is room: once there is, it stays.
pub(super) fn soonest(has_room: impl Fn(u64) -> bool) -> u64 {
    if has_room(0) {
        return 0;
    }
    let (mut too_soon, mut late) = (0, 1);
    while !has_room(late) {
        (too_soon, late) = (late, late * 2);
    }
    while too_soon + 1 < late {
        let middle = u64::midpoint(too_soon, late);
        if has_room(middle) {
            late = middle;
        } else {
            too_soon = middle;
        }
    }
    late
}
