#!/usr/bin/env bash
# A server of MCP closes the stream of a slow call and has the client fetch the result later, by a GET with the last
# event. If a limiter answers that GET with 429 and five seconds, both SDKs ask again after their own second or so, and
# give up at the second refusal. The tool has run and its result lies ready, but the call fails: in Python at once, and
# in TypeScript with "Request timed out" after the whole timeout. Who repeats the call pays twice. The limit has to let
# such a GET pass, or to delay it.
. "$(dirname "$0")/setup"
with_python mcp==2.3.0
with_node @modelcontextprotocol/sdk@1.32.2
cat >server.py <<'PY'
import json, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Server(BaseHTTPRequestHandler):
    """It runs one tool, and has the result fetched, which it refuses for the seconds in its path."""
    calls, closed, fetched, call = 0, 0.0, [], None
    protocol_version = "HTTP/1.1"

    def answer(self, status, type="application/json", text="", **fields):
        self.send_response(status)
        for field in {**fields, "content-type": type, "content-length": str(len(text))}.items():
            self.send_header(*field)
        self.end_headers()
        self.wfile.write(text.encode())

    def reply(self, id, result):
        return json.dumps({"jsonrpc": "2.0", "id": id, "result": result})

    def do_GET(self):
        seconds = int(self.path.strip("/"))
        if "last-event-id" not in self.headers:
            return self.answer(405)
        Server.fetched.append(time.monotonic() - Server.closed)
        if Server.fetched[-1] < seconds:
            return self.answer(429, **{"retry-after": str(seconds)})
        text = self.reply(Server.call, {"content": [{"type": "text", "text": "paid"}]})
        self.answer(200, "text/event-stream", f"id: 2\ndata: {text}\n\n")

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        match message.get("method"):
            case "initialize":
                version = message["params"]["protocolVersion"]
                server = {"name": "server", "version": "1"}
                result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
                self.answer(200, text=self.reply(message["id"], result))
            case "tools/list":
                tools = [{"name": "pay", "inputSchema": {"type": "object"}}]
                self.answer(200, text=self.reply(message["id"], {"tools": tools}))
            case "tools/call":
                Server.calls, Server.call, Server.fetched = Server.calls + 1, message["id"], []
                self.answer(200, "text/event-stream", "id: 1\ndata: \n\n")
                Server.closed = time.monotonic()
            case _:
                self.answer(202)

    def do_DELETE(self):
        self.answer(200)

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/"
PY
cat >client.mjs <<'JS'
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const client = new Client({ name: 'client', version: '1' });
client.onerror = () => {};
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
await client.callTool({ name: 'pay', arguments: {} }, undefined, { timeout: 10000 })
  .then((result) => console.log(result.content[0].text), (error) => console.log(error.message));
process.exit(0);
JS
python - <<'PY'
import asyncio, subprocess
from mcp import ClientSession, MCPError
from mcp.client.streamable_http import streamable_http_client
from server import Server, url

async def python(url):
    async with streamable_http_client(url) as streams, ClientSession(*streams[:2]) as client:
        await client.initialize()
        try:
            return (await client.call_tool("pay", {})).content[0].text
        except MCPError as error:
            return str(error)

def typescript(url):
    return subprocess.check_output(["node", "client.mjs", url], text=True).strip()

for name, call in (("Python", lambda url: asyncio.run(python(url))), ("TypeScript", typescript)):
    for seconds in (0, 5):
        Server.calls = 0
        answer = call(f"{url}{seconds}")
        print(f"{name}, to be fetched after {seconds} s: {answer!r}. Calls: {Server.calls}, fetched after",
              *(f"{it:.1f} s" for it in Server.fetched))
        lost = {"Python": "SSE stream ended and reconnection attempts were exhausted",
                "TypeScript": "MCP error -32001: Request timed out"}[name]
        assert (answer, Server.calls, len(Server.fetched)) == (("paid", 1, 1) if seconds == 0 else (lost, 1, 2))
PY
