#!/usr/bin/env bash
# stamina's `timeout` is the total time of all retries, 45 s by default. Its hook for `Retry-After` returns a wait, and
# stamina sleeps all of it: it asks whether the timeout is over before the wait, and not when the wait would end. A
# service that says an hour holds the caller for an hour, and gets one more request after it. The hook has to compare.
. "$(dirname "$0")/setup"
with_python stamina==26.1.0
python - <<'PY'
import time
import stamina

class Refused(Exception):
    pass

def tried(told):
    """How often it was tried, and for how many seconds, with a timeout of one."""
    count = 0

    @stamina.retry(on=lambda error: told, attempts=3, timeout=1)
    def ask():
        nonlocal count
        count += 1
        raise Refused

    start = time.monotonic()
    try:
        ask()
    except Refused:
        return count, round(time.monotonic() - start)

found = {told: tried(told) for told in (0.1, 6.0, 12.0)}
for told, (count, seconds) in found.items():
    print(f"timeout of 1 s, told {told} s: {count} tries, {seconds} s")
assert found == {0.1: (3, 0), 6.0: (2, 6), 12.0: (2, 12)}, found
PY
