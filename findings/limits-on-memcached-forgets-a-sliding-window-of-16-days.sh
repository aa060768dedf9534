#!/usr/bin/env bash
# Memcached takes a time to live over 30 days for a date, in 1970, and forgets the key at once. Python's `limits`, and
# Flask-Limiter above it, send the window as it is, and the sliding window counter sends twice its length. So a limit of
# 16 days admits every call, although the same limit as a fixed window holds, and so does one of 14 days. `1/month` is
# 30 days, and `1/year` holds in neither.
. "$(dirname "$0")/setup"
with_python limits==5.8.0 pymemcache==4.0.0
with_debian memcached=1.6.18-1+deb12u1 libevent-2.1-7
# Root has to name an account, and others' is ignored.
LD_LIBRARY_PATH=$(echo debian/usr/lib/*-linux-gnu) memcached -u root -l 127.0.0.1 -p 18751 &
cat >try.py <<'PY'
import time
import limits
from limits.storage import MemcachedStorage
from limits.strategies import FixedWindowRateLimiter, SlidingWindowCounterRateLimiter
from pymemcache.client.base import Client

for _ in range(200):
    try:
        print("server: Memcached", Client(("127.0.0.1", 18751)).version().decode())
        break
    except ConnectionRefusedError:
        time.sleep(0.05)

storage = MemcachedStorage("memcached://127.0.0.1:18751")
expected = {"1/14 days": (1, 1), "1/16 days": (1, 4), "1/month": (1, 4), "1/year": (4, 4)}
for text, counts in expected.items():
    found = []
    for strategy in (FixedWindowRateLimiter, SlidingWindowCounterRateLimiter):
        limiter = strategy(storage)
        found.append(sum(limiter.hit(limits.parse(text), strategy.__name__) for _ in range(4)))
    print(f"{text}: of four calls the fixed window admits {found[0]}, the sliding one {found[1]}")
    assert tuple(found) == counts, found
PY
python try.py
