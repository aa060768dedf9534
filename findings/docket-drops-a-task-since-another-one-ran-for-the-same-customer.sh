#!/usr/bin/env bash
# Docket, the task queue that FastMCP uses, limits a task for each value of an argument: `customer: Annotated[int,
# Cooldown(..)]`. Its key is the argument's name and value without the task's name, and so is that of `RateLimit`. So
# two tasks that both have a `customer` are one to them: a customer's invoice is dropped, at the level INFO, since the
# greeting ran in the last hour, and "two an hour" of the one refuses the other. On the task instead of the argument
# they are apart. Each needs a `scope` of its own.
. "$(dirname "$0")/setup"
with_python pydocket==0.27.0
python - <<'PY'
import asyncio
from datetime import timedelta
from typing import Annotated
from docket import Cooldown, Docket, RateLimit, Worker

HOUR = timedelta(hours=1)
ran = []

async def greet(customer: Annotated[int, Cooldown(HOUR)]):
    ran.append("greet")

async def invoice(customer: Annotated[int, Cooldown(HOUR)]):
    ran.append("invoice")

async def search(customer: Annotated[int, RateLimit(2, per=HOUR, drop=True)]):
    ran.append("search")

async def export(customer: Annotated[int, RateLimit(2, per=HOUR, drop=True)]):
    ran.append("export")

async def greet_alone(customer: int, cooldown: Cooldown = Cooldown(HOUR)):
    ran.append("greet_alone")

async def invoice_alone(customer: int, cooldown: Cooldown = Cooldown(HOUR)):
    ran.append("invoice_alone")

async def invoice_in_scope(customer: Annotated[int, Cooldown(HOUR, scope="invoices")]):
    ran.append("invoice_in_scope")

async def run(customer, *tasks):
    """Those that ran, of tasks for a customer, one after the other."""
    ran.clear()
    async with Docket(name="quotes", url="memory://") as docket, Worker(docket) as worker:
        for task in tasks:
            docket.register(task)
            await docket.add(task)(customer=customer)
            await worker.run_until_finished()
    print("for one customer", [task.__name__ for task in tasks], "ran", ran)
    return list(ran)

async def main():
    assert await run(1, greet, invoice) == ["greet"]
    assert await run(2, search, search, export) == ["search", "search"]
    assert await run(3, greet_alone, invoice_alone) == ["greet_alone", "invoice_alone"]
    assert await run(4, greet, invoice_in_scope) == ["greet", "invoice_in_scope"]

asyncio.run(main())
PY
