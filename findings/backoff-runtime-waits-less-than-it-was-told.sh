#!/usr/bin/env bash
# Python's `backoff` has `backoff.runtime` for the wait that an answer names, such as `Retry-After`. Its decorators add
# their full jitter to that as well: a random share of the told wait, between none and all. A client that reads the
# field asks again too early nearly every time, and is refused for it. `jitter=None` obeys.
. "$(dirname "$0")/setup"
with_python backoff==2.2.1
python - <<'PY'
import time
import backoff

def waits(**options):
    times = []

    @backoff.on_predicate(backoff.runtime, predicate=lambda _: True, value=lambda _: 0.4, max_tries=9, **options)
    def ask():
        times.append(time.monotonic())
        return "429, Retry-After"

    ask()
    return [round(later - earlier, 2) for earlier, later in zip(times, times[1:])]

default, obeying = waits(), waits(jitter=None)
print("told 0.4 s, waited", default, "and without jitter", obeying)
assert min(default) < 0.3 and sum(default) < 0.9 * sum(obeying)
assert all(0.4 <= wait < 0.5 for wait in obeying)
PY
