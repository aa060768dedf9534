#!/usr/bin/env bash
# A handler of an MCP server in TypeScript throws `McpError(429, .., { retryAfterMs })`. From a resource or a prompt the
# client gets code and data. From a tool it gets a result with `isError` and a text: code and data are gone. A limit on
# tools cannot name its wait this way, although the server's author wrote it down. The text repeats its prefix as well.
. "$(dirname "$0")/setup"
with_node @modelcontextprotocol/sdk@1.32.2 zod@4.6.7
cat >try.mjs <<'JS'
import assert from 'node:assert';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { McpError } from '@modelcontextprotocol/sdk/types.js';

const server = new McpServer({ name: 'server', version: '1' });
const refuse = async () => { throw new McpError(429, 'two calls in 30 s', { retryAfterMs: 5000 }); };
server.registerTool('tool', {}, refuse);
server.registerResource('resource', 'x://resource', {}, refuse);
server.registerPrompt('prompt', {}, refuse);
const [here, there] = InMemoryTransport.createLinkedPair();
const client = new Client({ name: 'client', version: '1' });
await Promise.all([server.connect(here), client.connect(there)]);

const outcome = (call) => call.then((result) => ({ result }), ({ code, data }) => ({ code, data }));
const tool = await outcome(client.callTool({ name: 'tool' }));
const resource = await outcome(client.readResource({ uri: 'x://resource' }));
const prompt = await outcome(client.getPrompt({ name: 'prompt' }));
console.log(JSON.stringify({ tool, resource, prompt }));
const kept = { code: 429, data: { retryAfterMs: 5000 } };
assert.deepStrictEqual([resource, prompt], [kept, kept]);
assert.deepStrictEqual(tool.result, {
  content: [{ type: 'text', text: 'MCP error 429: two calls in 30 s' }],
  isError: true,
});
process.exit(0);
JS
node try.mjs
