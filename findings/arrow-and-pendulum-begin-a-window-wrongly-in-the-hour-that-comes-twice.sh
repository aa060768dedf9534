#!/usr/bin/env bash
# In autumn an hour comes twice. arrow's `span("hour")` of the second one is the first: a limit of an hour counts two
# hours in one window, and the wait until its end is half an hour below zero. pendulum has the hour right. But in Havana
# the hour after midnight comes twice, and its `start_of("day")` is the second midnight in the second hour, and the first
# one before and after it. A quota of a day that is kept under this start is there a second time for that hour.
. "$(dirname "$0")/setup"
with_python arrow==1.4.0 pendulum==3.3.0 tzdata==2026.4
export PYTHONTZPATH=
python - <<'PY'
from datetime import datetime, timezone
import arrow, pendulum

def windows(zone, frame):
    """By each library the start of the window, and the minutes until its end, at half past of four hours."""
    rows = []
    for hour in (4, 5, 6, 7):
        now = datetime(2025, 11, 2, hour, 30, tzinfo=timezone.utc)
        by_pendulum = pendulum.instance(now).in_timezone(zone)
        both = arrow.get(now).to(zone).span(frame), (by_pendulum.start_of(frame), by_pendulum.end_of(frame))
        starts = [start.isoformat()[11:16] + start.isoformat()[-6:] for start, _ in both]
        ends = [round((end.timestamp() - now.timestamp()) / 60) for _, end in both]
        print(f"{zone}, {by_pendulum:HH:mmZ}, the {frame} by arrow begins at {starts[0]} and ends in {ends[0]} minutes,",
              f"by pendulum at {starts[1]} and in {ends[1]}")
        rows.append((starts, ends))
    return rows

hours, days = windows("America/New_York", "hour"), windows("America/Havana", "day")
assert [ends for _, ends in hours] == [[30, 30], [30, 30], [-30, 30], [30, 30]], hours
first, second = "00:00-04:00", "00:00-05:00"
assert [starts for starts, _ in days] == [[first, first], [first, second], [first, first], [first, first]], days
PY
