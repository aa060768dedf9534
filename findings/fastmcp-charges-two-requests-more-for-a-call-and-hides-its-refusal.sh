#!/usr/bin/env bash
# FastMCP's rate limit counts every message of MCP, for all clients together unless it is told how to know them. A client
# that calls one tool sends three: its discovery of the server, the call, and a list of the tools, which the SDK asks for
# after the first call. So four requests admit two calls. The next client's discovery is refused, which the SDK takes for
# a server of an older protocol: it reports a handshake that is "not accepted", and no limit.
. "$(dirname "$0")/setup"
with_python fastmcp==4.2.3 mcp==2.3.0
cat >try.py <<'PY'
import asyncio
from fastmcp import Client, FastMCP
from fastmcp.server.middleware import Middleware
from fastmcp.server.middleware.rate_limiting import RateLimitingMiddleware

class Seen(Middleware):
    def __init__(self):
        self.methods = []

    async def on_message(self, context, call_next):
        self.methods.append(context.method)
        return await call_next(context)

async def main():
    server, seen = FastMCP("server"), Seen()
    server.add_middleware(seen)
    server.add_middleware(RateLimitingMiddleware(max_requests_per_second=0.001, burst_capacity=4))

    @server.tool
    def ask(text: str) -> str:
        return text

    answers = []
    async with Client(server) as alice:
        for _ in range(3):
            try:
                answers.append((await alice.call_tool("ask", {"text": "why"})).data)
            except Exception as error:
                answers.append(str(error))
    print("alice:", seen.methods, answers)
    assert seen.methods == ["server/discover", "tools/call", "tools/list", "tools/call", "tools/call"]
    assert answers == ["why", "why", "Rate limit exceeded for client: global"]
    try:
        async with Client(server):
            raise SystemExit("bob is connected")
    except Exception as error:
        print("bob:", error)
        assert "handshake is not accepted" in str(error) and "limit" not in str(error)

asyncio.run(main())
PY
# Each refusal has a traceback in the server's log.
python try.py 2>log || { tail -5 log; exit 1; }
