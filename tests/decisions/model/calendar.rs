//! Windows of the calendar against the calendar itself, in both stores.

use std::time::Duration;

use harness::RedisServer;
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use ratelimit_runtime::{
    CalendarUnit, Policy,
    replay::{Recorded, Replay},
};

use super::script::load_calendar;

/// With summer time on both hemispheres, offsets of half and quarter hours, a midnight that is left out
/// (Beirut), and a day that is left out (Apia, 2011-12-30).
const ZONES: [&str; 7] = [
    "UTC",
    "Europe/Berlin",
    "America/Santiago",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Asia/Beirut",
    "Pacific/Apia",
];

/// In seconds since the UNIX epoch: from 2007-06-15 on, for ten years.
const YEARS: std::ops::Range<i64> = 1_181_865_600..1_497_484_800;

const SECOND: u64 = 1_000_000;

/// Returns what is equal for all times of one window.
fn name(unit: CalendarUnit, date: Date) -> (i16, i8) {
    match unit {
        CalendarUnit::Week => (date.iso_week_date().year(), date.iso_week_date().week()),
        CalendarUnit::Month => (date.year(), date.month()),
        _ => (date.day_of_year(), 0),
    }
}

/// Returns the times at which the window of the calendar changes, in microseconds since the UNIX epoch. It looks
/// four times a day, and halves the time between two that differ.
fn boundaries(unit: CalendarUnit, zone: &str) -> Vec<u64> {
    let zone = TimeZone::get(zone).unwrap();
    let name_at = |second: i64| {
        let time = Timestamp::from_second(second).unwrap();
        name(unit, time.to_zoned_datetime(zone.clone()).date())
    };
    let mut found = Vec::new();
    let mut before = name_at(YEARS.start);
    for time in YEARS.step_by(6 * 3_600).skip(1) {
        let present = name_at(time);
        if present == before {
            continue;
        }
        let (mut earlier, mut later) = (time - 6 * 3_600, time);
        while later - earlier > 1 {
            let middle = earlier.midpoint(later);
            if name_at(middle) == before { earlier = middle } else { later = middle }
        }
        found.push(u64::try_from(later).unwrap() * SECOND);
        before = present;
    }
    found
}

fn all() -> impl Iterator<Item = (CalendarUnit, &'static str, Vec<u64>)> {
    let units = CalendarUnit::ALL.iter();
    units.flat_map(|unit| ZONES.map(|zone| (*unit, zone, boundaries(*unit, zone))))
}

#[test]
fn the_windows_of_the_reference_are_those_of_the_calendar() {
    let at = |time: &str| {
        let time: Timestamp = time.parse().unwrap();
        u64::try_from(time.as_microsecond()).unwrap()
    };
    let days = boundaries(CalendarUnit::Day, "Pacific/Apia");
    let index = days.binary_search(&at("2011-12-31T00:00:00+14:00")).unwrap();
    assert_eq!(days[index - 1], at("2011-12-29T00:00:00-10:00"));
    let days = boundaries(CalendarUnit::Day, "Asia/Beirut");
    // Midnight does not exist: the day starts at 1:00.
    assert!(days.contains(&at("2010-03-28T01:00:00+03:00")));
    let weeks = boundaries(CalendarUnit::Week, "Europe/Berlin");
    let index = weeks.binary_search(&at("2009-12-28T00:00:00+01:00")).unwrap();
    assert_eq!(weeks[index + 1], at("2010-01-04T00:00:00+01:00"));
}

/// One unit is taken in each window: at its start, and no more in its last microsecond.
#[test]
fn memory_counts_every_window_of_ten_years() {
    for (unit, zone, boundaries) in all() {
        let policy = Policy::calendar_window("calendar", unit, 1).zone(zone);
        let mut replay = Replay::new(&policy).unwrap();
        let mut decide = |at| replay.decide(Recorded::new(Duration::from_micros(at), "alice", 1));
        for window in boundaries.windows(2) {
            let length = Duration::from_micros(window[1] - window[0]);
            let first = decide(window[0]).unwrap();
            assert_eq!(first.reset_after(), length, "{unit:?} {zone} {window:?}");
            assert!(decide(window[1] - 1).is_err(), "{unit:?} {zone} {window:?}");
        }
        assert!(boundaries.len() > 118, "{unit:?} {zone}");
    }
}

/// The same in the script, whose client sends the windows around a time of its own: exact, a window behind,
/// or a window ahead.
#[test]
fn redis_counts_every_window_of_ten_years_also_for_clients_a_window_off() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let sha1 = load_calendar(&mut connection);
    for (unit, zone, boundaries) in all() {
        let (mut pipe, mut expected) = (redis::pipe(), Vec::new());
        // Nominal lengths, as they are in keys and commands.
        let days: u64 = match unit {
            CalendarUnit::Week => 7,
            CalendarUnit::Month => 31,
            _ => 1,
        };
        for (index, near) in boundaries.windows(6).enumerate() {
            let (start, end) = (near[2], near[3]);
            for (now, admitted) in [(start, true), (end - 1, false)] {
                let sent = &near[index % 3..][..4];
                pipe.cmd("EVALSHA").arg(&sha1).arg(3).arg(format!("{unit:?}{zone}"));
                pipe.arg(now / SECOND).arg(now % SECOND);
                // Take one unit; the call is named 7, and waits for nothing.
                pipe.arg(1).arg(1).arg(0).arg(7).arg(0).arg(1);
                pipe.arg(days * 86_400 * SECOND).arg(1).arg(sent);
                expected.push((admitted, end - now, now));
            }
        }
        let replies: Vec<Vec<i64>> = pipe.query(&mut connection).unwrap();
        for (reply, (admitted, left, now)) in replies.iter().zip(expected) {
            let left = i64::try_from(left).unwrap();
            let at = format!("{unit:?} {zone} at {now}: {reply:?}");
            assert_eq!((reply[0] > 0, reply[1], reply[2]), (admitted, left, left), "{at}");
        }
    }
}

/// Two clients whose months end an hour apart, as with databases of two years. A window lasts from the first start
/// to the last end that they name, and units around an end count in two.
#[test]
fn redis_counts_the_windows_of_two_clients_that_name_different_ends() {
    const THRESHOLD: u64 = 6;
    let server = RedisServer::start();
    let mut connection = server.connection();
    let sha1 = load_calendar(&mut connection);
    let boundaries = boundaries(CalendarUnit::Month, "Europe/Berlin");
    let hour = 3_600 * SECOND;
    let names = |client: u64, near: &[u64]| [0, 1, 2, 3].map(|it| near[it] + client * hour);
    let (mut admitted, mut both) = (Vec::new(), 0);
    for near in boundaries.windows(4) {
        let (start, end) = (near[1], near[2]);
        // Each calls in the middle of the month, and often around its end.
        let mut calls = vec![(start + 10 * 24 * hour, 0, 1), (start + 11 * 24 * hour, 1, 1)];
        let around = || end - hour / 2 + fastrand::u64(..2 * hour);
        calls.extend((0..12).map(|_| (around(), fastrand::u64(..2), fastrand::u64(1..3))));
        calls.sort_unstable();
        for (now, client, cost) in calls {
            // The present window of this client's calendar.
            let shift = client * hour;
            let at = boundaries.iter().rposition(|it| it + shift <= now).unwrap();
            let Some(sent) = boundaries.get(at - 1..at + 3) else { continue };
            let mut call = redis::cmd("EVALSHA");
            call.arg(&sha1).arg(3).arg("key").arg(now / SECOND).arg(now % SECOND);
            call.arg(1).arg(cost).arg(0).arg(7).arg(0).arg(1);
            call.arg(31 * 24 * hour).arg(THRESHOLD).arg(&names(client, sent)[..]);
            let reply: Vec<i64> = call.query(&mut connection).unwrap();
            let units_in = |window: &[u64]| -> u64 {
                let span = window[0]..window[1] + hour;
                let inside = admitted.iter().filter(|(at, _)| span.contains(at));
                if span.contains(&now) { inside.map(|(_, units)| units).sum() } else { 0 }
            };
            let most = boundaries.windows(2).map(units_in).max().unwrap();
            let has_room = most + cost <= THRESHOLD;
            assert_eq!(reply[0] > 0, has_room, "{client} at {now}, {most}: {reply:?} {admitted:?}");
            both += u32::from((end..end + hour).contains(&now));
            if has_room {
                admitted.push((now, cost));
            }
        }
    }
    assert!(both > 200, "{both}");
}

#[test]
fn a_clock_out_of_all_windows_is_an_error() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let sha1 = load_calendar(&mut connection);
    for now in [9, 40, 4_000] {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&sha1).arg(3).arg("key").arg(now).arg(0).arg(1).arg(1).arg(0).arg(7).arg(0).arg(1);
        let windows = [10, 20, 30, 40].map(|second| second * SECOND);
        call.arg(86_400 * SECOND).arg(1).arg(&windows[..]);
        let reply: redis::RedisResult<Vec<i64>> = call.query(&mut connection);
        let error = reply.unwrap_err().to_string();
        assert!(error.contains("differ by more than a window"), "{error}");
    }
    assert_eq!(server.keys(), Vec::<String>::new());
}
