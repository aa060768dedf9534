#!/usr/bin/env bash
# A tool on MCP's SDK for Python raises "two calls in 30 s, wait 5 s". In version 2 the model reads "Error executing tool
# ask" and nothing else, so that it repeats the call at once. A refusal by `MCPError` keeps its words, but goes to the
# program instead of the model. A limit on a tool has to return its text, and not to raise it.
. "$(dirname "$0")/setup"
with_python mcp==2.3.0
cat >try.py <<'PY'
import asyncio
from mcp import Client, MCPError
from mcp.server import MCPServer

WHY = "two calls in 30 s, wait 5 s"
server = MCPServer("server")

@server.tool()
def ask() -> str:
    raise RuntimeError(WHY)

@server.tool()
def ask_by_protocol() -> str:
    raise MCPError(code=429, message=WHY)

async def main():
    async with Client(server) as client:
        answer = await client.call_tool("ask", {})
        try:
            await client.call_tool("ask_by_protocol", {})
        except MCPError as error:
            return answer, error.error

answer, error = asyncio.run(main())
print("the model reads", repr(answer.content[0].text), "- the program", error)
assert answer.is_error and answer.content[0].text == "Error executing tool ask"
assert (error.code, error.message) == (429, WHY)
PY
python try.py 2>/dev/null
