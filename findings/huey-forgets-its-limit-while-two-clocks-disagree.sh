#!/usr/bin/env bash
# Huey's `rate_limit` keeps one counter, and the number of its window. A worker that finds another number than its own
# clock says, a later or an earlier one, clears the counter. So while the clocks of two hosts stand on both sides of a
# window's end, each call of the one clears what the other has counted, and nobody is refused. At five a second, and
# with clocks that are 0.1 s apart, 13 calls a second pass.
. "$(dirname "$0")/setup"
with_python huey==3.5.4
python - <<'PY'
import time, types
import huey.api
from huey import SqliteHuey
from huey.exceptions import RateLimitExceeded

now = 0.0
huey.api.time = types.SimpleNamespace(**{**vars(time), "time": lambda: now})

def admitted(apart):
    """In 20 seconds, of one call in 0.02 s on each of two hosts. Five in a second are allowed on both together."""
    global now
    hosts = [SqliteHuey("jobs", filename="jobs.db").rate_limit("service", 5, per=1) for _ in range(2)]
    hosts[0].reset()
    count = 0
    for call in range(1000):
        for host, behind in zip(hosts, (apart, 0)):
            now = 1_900_000_000.5 + call / 50 - behind
            try:
                host.acquire()
                count += 1
            except RateLimitExceeded:
                pass
    return count

found = {apart: admitted(apart) for apart in (0, 0.05, 0.1)}
for apart, count in found.items():
    print(f"five a second, clocks {apart} s apart: {count} calls within 20 s")
assert found == {0: 105, 0.05: 185, 0.1: 265}, found
PY
