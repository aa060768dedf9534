#!/usr/bin/env bash
# slowapi's `X-RateLimit-Reset` is the time of the reset as it is kept inside, with digits after the point. Clients that
# read the field as the whole number that others send fail on it: Python's `int` raises, Go's Atoi and Rust's `parse`
# return an error, and the retry that should have waited is an exception. Its `Retry-After` on the same answer is whole.
. "$(dirname "$0")/setup"
with_python slowapi==0.1.10 starlette==1.0.0 httpx==0.28.1
python - <<'PY'
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from slowapi.util import get_remote_address
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

limiter = Limiter(key_func=get_remote_address, headers_enabled=True)

@limiter.limit("1/minute")
async def hello(request):
    return PlainTextResponse("hello")

app = Starlette(routes=[Route("/", hello)])
app.state.limiter = limiter
app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)
client = TestClient(app)
client.get("/")
refused = client.get("/")
reset, wait = refused.headers["x-ratelimit-reset"], refused.headers["retry-after"]
try:
    int(reset)
except ValueError as error:
    why = str(error)
print(refused.status_code, "X-RateLimit-Reset", reset, "Retry-After", wait, "-", why)
assert refused.status_code == 429 and "." in reset and int(wait) <= 60 and "invalid literal" in why
PY
