#!/usr/bin/env bash
# throttled-py's token bucket, which it uses by default, and its leaking bucket count whole seconds, and drop the
# fraction of a unit that a second has earned: a client with a call in each second earns one unit in each, whether the
# limit has 61 or 119 a minute. So once the burst is used up, 100 a minute admits 60, and a client that asks 90 times is
# refused for it. Limits of 60, 120 or 180 a minute are exact, and so are its other algorithms.
. "$(dirname "$0")/setup"
with_python throttled-py==3.5.0
python - <<'PY'
from throttled import MemoryStore, RateLimiterType, Throttled, per_min, utils

now = 0.0
utils.now_sec, utils.now_ms = (lambda: int(now)), (lambda: int(now * 1000))
utils.now_mono_f = utils.now_sec_f = lambda: now

def admitted(algorithm, limit, asked):
    """Calls a minute in the last 20 of 30 minutes, of a client that asks so often a minute, evenly."""
    global now
    throttle, count = Throttled(key="client", using=algorithm, quota=per_min(limit), store=MemoryStore()), 0
    for call in range(30 * asked):
        now = 1_900_000_000 + call * 60 / asked
        count += not throttle.limit().limited and call >= 10 * asked
    return round(count / 20)

found = {}
for algorithm in RateLimiterType.choice():
    found[algorithm] = [admitted(algorithm, *case) for case in ((60, 90), (100, 90), (120, 110))]
    print(f"{algorithm}: 60 a minute admits {found[algorithm][0]} of 90, 100 admits {found[algorithm][1]} of 90,",
          f"120 admits {found[algorithm][2]} of 110")
for algorithm, counts in found.items():
    assert counts[0] in (59, 60) and counts[2] == 110, found
    assert counts[1] == (60 if algorithm.endswith("bucket") else 90), found
PY
