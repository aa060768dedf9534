#!/usr/bin/env bash
# aiolimiter keeps the tasks that wait for room in a heap, the smallest amount first and not the oldest. While calls of
# one unit keep its limit busy, a call of two units waits for ever: in an hour at 100 a minute 6000 small ones pass it.
# So a limit on tokens of a language model serves short prompts alone, and the long one's `acquire` returns no error
# either. Calls of one size are served in their order. Amounts have to be taken unit by unit, or behind a lock.
. "$(dirname "$0")/setup"
with_python aiolimiter==1.3.0
python - <<'PY'
import asyncio
from aiolimiter import AsyncLimiter

class Simulated(asyncio.SelectorEventLoop):
    """A loop whose time passes as soon as nothing is left to do."""

    def __init__(self):
        super().__init__()
        self.seconds = 0.0
        select = self._selector.select

        def at_once(timeout):
            self.seconds += max(timeout or 0, 1e-6)
            return select(0)

        self._selector.select = at_once

    def time(self):
        return self.seconds

async def hour(amount):
    limiter = AsyncLimiter(100, 60)
    await limiter.acquire(100)
    passed, waited = 0, None

    async def worker():
        nonlocal passed
        while True:
            await limiter.acquire(1)
            passed += 1
            await asyncio.sleep(1)

    async def one_call():
        nonlocal waited
        await limiter.acquire(amount)
        waited = asyncio.get_running_loop().time()

    tasks = [asyncio.create_task(one_call())]
    await asyncio.sleep(0.1)
    tasks += [asyncio.create_task(worker()) for _ in range(10)]
    await asyncio.sleep(3600)
    for task in tasks:
        task.cancel()
    return passed, waited

found = {}
for amount in (1, 2):
    with asyncio.Runner(loop_factory=Simulated) as runner:
        passed, waited = runner.run(hour(amount))
    print(f"a call of {amount}, before ten workers with calls of 1:", f"served after {waited:.1f} s" if waited else
          "not served within an hour", "units of the workers:", passed)
    found[amount] = waited and round(waited, 1), passed // 10
assert found == {1: (0.6, 599), 2: (None, 600)}, found
PY
