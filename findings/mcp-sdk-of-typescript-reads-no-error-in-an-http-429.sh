#!/usr/bin/env bash
# A limiter in front of an MCP server answers 429 with a JSON-RPC error for the call, as the protocol's drafts ask for.
# The client in Python raises that error. The one in TypeScript throws the HTTP status with the body pasted into its
# message: `code` is 429 instead of the error's, there is no `data`, and `Retry-After` cannot be reached at all.
. "$(dirname "$0")/setup"
with_python mcp==2.3.0
with_node @modelcontextprotocol/sdk@1.32.2 zod@4.6.7
cat >server.mjs <<'JS'
import http from 'node:http';
const refusal = { code: -32023, message: 'two calls in 30 s', data: { retryAfterMs: 7000 } };
http.createServer((request, response) => {
  let body = '';
  request.on('data', (data) => { body += data; }).on('end', () => {
    const answer = (status, id, rest, fields = {}) => {
      response.writeHead(status, { 'content-type': 'application/json', ...fields });
      response.end(JSON.stringify({ jsonrpc: '2.0', id, ...rest }));
    };
    if (request.method !== 'POST') return response.writeHead(405).end();
    const { id, method, params } = JSON.parse(body);
    if (id === undefined) return response.writeHead(202).end();
    if (method === 'tools/call') return answer(429, id, { error: refusal }, { 'retry-after': '7' });
    if (method !== 'initialize') return answer(200, id, { error: { code: -32601, message: 'unknown' } });
    const { protocolVersion } = params;
    const serverInfo = { name: 'server', version: '1' };
    answer(200, id, { result: { protocolVersion, capabilities: { tools: {} }, serverInfo } });
  });
}).listen(18713, '127.0.0.1', () => console.log('listening'));
JS
coproc node server.mjs
read -r _ <&"${COPROC[0]}"
cat >try.mjs <<'JS'
import assert from 'node:assert';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
const client = new Client({ name: 'client', version: '1' });
await client.connect(new StreamableHTTPClientTransport(new URL('http://127.0.0.1:18713/')));
const error = await client.callTool({ name: 'tool' }).catch((it) => it);
console.log('TypeScript:', error.constructor.name, error.code, error.data, error.message);
assert.deepStrictEqual([error.code, error.data, Object.keys(error)], [429, undefined, ['code']]);
assert.ok(error.message.includes('"retryAfterMs":7000'));
process.exit(0);
JS
node try.mjs
python - <<'PY'
import asyncio
from mcp import Client, MCPError

async def main():
    async with Client("http://127.0.0.1:18713/") as client:
        try:
            await client.call_tool("tool", {})
        except MCPError as error:
            return error.error
    raise SystemExit("no error")

error = asyncio.run(main())
print("Python:", error)
assert (error.code, error.data) == (-32023, {"retryAfterMs": 7000})
PY
