#!/usr/bin/env bash
# Litestar's `RateLimitConfig` has one unit, so that a limit of a minute and one of a day are two middlewares. They
# share one counter, since its key is the class and the client without the unit: each request counts twice, and the
# outer one decides when the counter begins anew. With the minute outside, a client of ten a day gets two in every
# minute. With the day outside, it gets two in a day. A `store` of its own for each limit keeps both.
. "$(dirname "$0")/setup"
with_python litestar==2.25.0
python - <<'PY'
import litestar.middleware.rate_limit
from litestar import Litestar, get
from litestar.middleware.rate_limit import RateLimitConfig
from litestar.testing import TestClient

now = 1_900_000_000
litestar.middleware.rate_limit.time = lambda: now

@get("/", sync_to_thread=False)
def hi() -> str:
    return "hi"

def admitted(*limits):
    """In each of ten minutes, with a request in every second."""
    global now
    minutes = []
    with TestClient(Litestar([hi], middleware=[limit.middleware for limit in limits], logging_config=None)) as client:
        for _ in range(10):
            count = 0
            for _ in range(60):
                count += client.get("/").status_code == 200
                now += 1
            minutes.append(count)
    return minutes

def limit(unit, count, **options):
    return RateLimitConfig(rate_limit=(unit, count), **options)

minute_outside = admitted(limit("minute", 4), limit("day", 10))
day_outside = admitted(limit("day", 10), limit("minute", 4))
apart = admitted(limit("minute", 4, store="minutes"), limit("day", 10, store="days"))
print("4 a minute, 10 a day:", minute_outside)
print("10 a day, 4 a minute:", day_outside)
print("with a store for each:", apart)
assert minute_outside == [2] * 10
assert day_outside == [2] + [0] * 9
assert apart == [4, 4, 2] + [0] * 7
PY
