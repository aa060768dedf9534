//! The database of time zones is the newer of the system's and the one in the program, and two processes whose
//! databases differ admit no more than the threshold in what either calls a month.

use std::{env, fs, path::Path, time::Duration};

use harness::{Clock, Lines, RedisServer, listen, ran_in_own_process_with, uncached, wall_clock};
use jiff::{ToSpan, ZonedDateTime};
use ratelimit_runtime::{
    CalendarUnit, Limiter, Policy, RateLimitError,
    replay::{Recorded, Replay},
};
use tempfile::TempDir;

const MONTHLY: Policy = Policy::calendar_window("bill", CalendarUnit::Month, 10);

/// Writes a file of a zone with one offset, which no real place has.
fn write_zone(path: &Path) {
    let part = |version: u8| {
        let mut header = b"TZif".to_vec();
        header.push(version);
        header.extend([0; 15]);
        // Of six counts, one type of local time, and the four bytes of its name.
        for count in [0_u32, 0, 0, 0, 1, 4] {
            header.extend(count.to_be_bytes());
        }
        header.extend(12_600_i32.to_be_bytes());
        header.extend([0, 0]);
        header.extend(b"ODD\0");
        header
    };
    let file = [part(b'2'), part(b'2'), b"\n<+0330>-3:30\n".to_vec()].concat();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, file).unwrap();
}

/// Returns the end of December 2026 in Vancouver.
fn end_of_year() -> String {
    let policy = MONTHLY.zone("America/Vancouver");
    let mut replay = Replay::new(&policy).unwrap();
    let noon: jiff::Timestamp = "2026-12-10T12:00:00Z".parse().unwrap();
    let at = Duration::try_from(noon.duration_since(jiff::Timestamp::UNIX_EPOCH)).unwrap();
    let first = replay.decide(Recorded::new(at, "alice", 1)).unwrap();
    (noon + jiff::SignedDuration::try_from(first.reset_after()).unwrap()).to_string()
}

#[test]
fn the_newer_database_decides_unless_the_environment_chooses() {
    const TEST: &str = "zones::the_newer_database_decides_unless_the_environment_chooses";
    for (file, version, choice, is_system) in [
        ("tzdata.zi", "# version 2025b\nR d 1916 o\n", "", false),
        ("tzdata.zi", "# version 2099a\n", "newest", true),
        ("+VERSION", "2099a\n", "", true),
        ("+VERSION", "1999z\n", "", false),
        ("README", "2099a\n", "", false),
        ("tzdata.zi", "# version 2025b\n", "system", true),
        ("tzdata.zi", "# version 2099a\n", "bundled", false),
    ] {
        let directory = TempDir::new().unwrap();
        write_zone(&directory.path().join("America/Vancouver"));
        fs::write(directory.path().join(file), version).unwrap();
        let path = directory.path().to_str().unwrap();
        let environment = [
            ("TZDIR", path),
            ("RATELIMIT_CALENDAR", choice),
            ("IS_SYSTEM", if is_system { path } else { "" }),
        ];
        if !ran_in_own_process_with(TEST, &environment) {
            return the_database_is(&env::var("IS_SYSTEM").unwrap());
        }
    }
}

/// In a process whose database is the system's in this directory, or without one that in the program.
fn the_database_is(system: &str) {
    let lines = Lines::default();
    let events = listen(lines.clone());
    let end = end_of_year();
    drop(events);
    assert_eq!(end == "2026-12-31T20:30:00Z", !system.is_empty(), "{end}");
    let limiter = format!("{:?}", Limiter::in_memory());
    let place = if system.is_empty() { "in the program" } else { system };
    assert!(limiter.contains("calendar: \"") && limiter.contains(place), "{limiter}");
    let told = lines.all().into_iter().filter(|it| it.contains("database of time zones"));
    let told: Vec<_> = told.collect();
    assert!(matches!(&told[..], [one] if one.contains(place)), "{told:?}");
    // A zone that only the program has.
    assert!(MONTHLY.zone("Europe/Berlin").validate().is_ok());
}

#[tokio::test]
async fn an_unknown_choice_is_an_error() {
    const TEST: &str = "zones::an_unknown_choice_is_an_error";
    if ran_in_own_process_with(TEST, &[("RATELIMIT_CALENDAR", "oldest")]) {
        return;
    }
    let error = Limiter::from_env().await.unwrap_err().to_string();
    assert_eq!(error, "RATELIMIT_CALENDAR: `oldest` is none of newest, system and bundled");
    // Other limiters take the default.
    assert_ne!(end_of_year(), "2026-12-31T20:30:00Z");
}

/// Two zones that are an hour apart stand for the databases of two processes.
struct TwoDatabases {
    clock: Clock,
    server: RedisServer,
    limiter: Limiter,
    early: Policy,
    late: Policy,
    /// The end of the month by the early one, in milliseconds.
    end: i64,
}

impl TwoDatabases {
    async fn new() -> Self {
        let clock = Clock::new();
        let server = clock.server(&[]);
        let limiter = uncached(&server.url()).await;
        let (early, late) = (MONTHLY.zone("Etc/GMT+7"), MONTHLY.zone("Etc/GMT+8"));
        // The early one is a month ahead in the hour between both ends, and the server would then be set to a time
        // that is out of the windows of the late one.
        let now = ZonedDateTime::now().in_tz("Etc/GMT+8").unwrap();
        let next = now.first_of_month().unwrap().checked_add(1.month()).unwrap();
        let end = next.start_of_day().unwrap().checked_sub(1.hour()).unwrap();
        let end = end.timestamp().as_millisecond();
        Self { clock, server, limiter, early, late, end }
    }

    /// Sets the clock to a minute after the first end.
    fn step_to(&self, minute: i64) {
        const MINUTE: i64 = 60_000;
        let here = i64::try_from(wall_clock() / 1_000).unwrap();
        self.clock.step(&self.server, self.end + minute * MINUTE - here);
    }

    async fn left(&self, policy: &Policy) -> u32 {
        self.limiter.peek(policy, "alice").cost(0).await.unwrap().remaining()
    }
}

#[tokio::test]
async fn two_databases_that_disagree_admit_no_more_in_what_either_calls_a_month() {
    let both = TwoDatabases::new().await;
    let (to, TwoDatabases { limiter, early, late, .. }) = (|minute| both.step_to(minute), &both);
    let take = async |policy: &Policy, cost| match limiter.check(policy, "alice").cost(cost).await {
        Ok(_) => None,
        Err(RateLimitError::Exceeded(refused)) => {
            Some(refused.retry_after().as_secs().div_ceil(60))
        }
        Err(error) => panic!("{error}"),
    };
    to(-60);
    assert_eq!(take(early, 2).await, None);
    assert_eq!(take(late, 2).await, None);
    // The month of one has ended, and units count in both.
    to(10);
    assert_eq!(take(early, 3).await, None);
    assert_eq!(take(late, 2).await, None);
    to(20);
    assert_eq!(take(early, 2).await, Some(40));
    assert_eq!(take(late, 1).await, None);
    assert_eq!(take(late, 1).await, Some(40));
    // Those of the last hour go on in the next month, and no others.
    to(61);
    assert_eq!(take(late, 5).await.map(|minutes| minutes > 27 * 24 * 60), Some(true));
    assert_eq!(take(early, 4).await, None);
    assert_eq!(take(early, 1).await.map(|minutes| minutes > 27 * 24 * 60), Some(true));
    assert_eq!(both.left(late).await, 0);
}

#[tokio::test]
async fn units_of_the_old_month_that_are_given_back_in_both_leave_the_next_month_as_it_is() {
    let both = TwoDatabases::new().await;
    let TwoDatabases { limiter, early, late, .. } = &both;
    both.step_to(-60);
    let given_back = limiter.check(early, "alice").cost(4).await.unwrap();
    limiter.check(late, "alice").await.unwrap();
    both.step_to(10);
    let kept = limiter.check(early, "alice").cost(3).await.unwrap();
    limiter.refund(&given_back).await.unwrap();
    assert_eq!(both.left(early).await, 6);
    both.step_to(61);
    assert_eq!((both.left(early).await, both.left(late).await), (7, 7));
    limiter.refund(&kept).await.unwrap();
    assert_eq!(both.left(early).await, 10);
}
