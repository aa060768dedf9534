#!/usr/bin/env bash
# `HTTPAdapter(max_retries=3)` of Python's requests is for failed connections, "never" for requests that have reached the
# server, its documentation says. A GET that got 429 with `Retry-After` is repeated all the same, and 413 and 503 as well:
# urllib3 below obeys the field without being asked to. The call sleeps as long as the field says, by default up to six
# hours, whatever its `timeout`. Without the field the same adapter returns the 429 at once.
. "$(dirname "$0")/setup"
with_python requests==2.34.2 urllib3==2.8.0
with_refusals
cat >try.py <<'PY'
import time
import requests
from refusals import start
from requests.adapters import HTTPAdapter
from urllib3 import Retry

documented = "never to requests where data has made it to the server"
assert documented in " ".join(HTTPAdapter.__doc__.split())
print("urllib3 obeys", Retry(1).retry_after_max, "s at most, for", sorted(Retry.RETRY_AFTER_STATUS_CODES))
assert Retry(1).retry_after_max == 6 * 3600 and Retry.RETRY_AFTER_STATUS_CODES == {413, 429, 503}

def call(method, fields):
    url, times = start(fields)
    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=1))
        began = time.monotonic()
        status = session.request(method, url, timeout=0.5).status_code
    return status, len(times), time.monotonic() - began

for method, fields, requests_seen in (("GET", {"retry-after": "3"}, 2), ("GET", {}, 1), ("POST", {"retry-after": "3"}, 1)):
    status, seen, took = call(method, fields)
    print(f"{method}, told {fields}: {status} after {seen} requests in {took:.1f} s, with a timeout of 0.5 s")
    assert (status, seen) == (429, requests_seen) and (took >= 3) == (seen == 2)
PY
python try.py
