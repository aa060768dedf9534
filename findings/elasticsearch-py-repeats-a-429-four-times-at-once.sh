#!/usr/bin/env bash
# Elasticsearch answers 429 when its queues are full, and its client for Python repeats such requests by default: three
# times within milliseconds, whatever `Retry-After` says, and writes as well as reads. The error at the end has the
# field, so that only the caller can obey it. A cluster or a limiter that asks for patience gets four requests for one.
. "$(dirname "$0")/setup"
with_python elasticsearch==9.5.1 elastic-transport==9.4.2
with_refusals
cat >try.py <<'PY'
from elasticsearch import ApiError, Elasticsearch
from refusals import start

url, times = start({"retry-after": "2", "x-elastic-product": "Elasticsearch", "content-type": "application/json"})
client = Elasticsearch(url)
for name, ask in {
    "search": lambda: client.search(index="books"),
    "index": lambda: client.index(index="books", id="1", document={"title": "a"}),
    "bulk": lambda: client.bulk(operations=[{"index": {"_index": "books"}}, {"title": "a"}]),
}.items():
    times.clear()
    try:
        ask()
        raise SystemExit("no error")
    except ApiError as error:
        told = error.meta.headers["retry-after"]
    took = times[-1] - times[0]
    print(f"{name}: told {told} s, {len(times)} requests in {took:.3f} s")
    assert len(times) == 4 and took < 1, times
PY
python try.py
