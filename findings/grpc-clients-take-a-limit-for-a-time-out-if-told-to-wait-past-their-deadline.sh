#!/usr/bin/env bash
# A gRPC server refuses with RESOURCE_EXHAUSTED and tells the wait in `grpc-retry-pushback-ms`. A client with a retry
# policy obeys, also if the wait ends after the call's deadline. Nothing can come of the retry then, but grpcio and
# grpc-js hold the call until the deadline, and report DEADLINE_EXCEEDED: the status, its text and its details, which
# they have had since the first answer, are lost. The caller and its metrics see a slow service where a limit refused.
# A wait within the deadline, or a pushback of -1, reports the refusal.
. "$(dirname "$0")/setup"
with_python grpcio==1.85.3
with_node @grpc/grpc-js@1.14.7
cat >server.py <<'PY'
import grpc, json, sys, time
from concurrent import futures

def refuse(wait, context):
    calls.append(wait)
    context.set_trailing_metadata((("grpc-retry-pushback-ms", wait.decode()),))
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "three a minute")

calls = []
server = grpc.server(futures.ThreadPoolExecutor(4))
method = grpc.unary_unary_rpc_method_handler(refuse)
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Quotes", {"Ask": method}),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
policy = {
    "maxAttempts": 3, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
    "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
}
config = json.dumps({"methodConfig": [{"name": [{"service": "Quotes"}], "retryPolicy": policy}]})
PY
cat >client.cjs <<'JS'
const grpc = require('@grpc/grpc-js');
const [port, config, ...waits] = process.argv.slice(2);
const same = (it) => it;
const ask = {
  path: '/Quotes/Ask', requestStream: false, responseStream: false, requestSerialize: same, requestDeserialize: same,
  responseSerialize: same, responseDeserialize: same,
};
const Client = grpc.makeGenericClientConstructor({ ask }, 'Quotes');
const client = new Client(`127.0.0.1:${port}`, grpc.credentials.createInsecure(), { 'grpc.service_config': config });
(async () => {
  for (const wait of waits) {
    const start = Date.now();
    const error = await new Promise((done) => client.ask(Buffer.from(wait), { deadline: start + 2000 }, done));
    console.log(JSON.stringify([grpc.status[error.code], error.details, Math.round((Date.now() - start) / 1000)]));
  }
  client.close();
})();
JS
python - <<'PY'
import json, subprocess
from server import calls, config, grpc, port, time

WAITS = "200", "-1", "5000"
channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.service_config", config)])

def by_python(wait):
    start = time.monotonic()
    try:
        channel.unary_unary("/Quotes/Ask")(wait.encode(), timeout=2)
    except grpc.RpcError as error:
        return [error.code().name, error.details(), round(time.monotonic() - start)]

def by_node():
    lines = subprocess.check_output(["node", "client.cjs", str(port), config, *WAITS], text=True)
    return [json.loads(line) for line in lines.splitlines()]

for name, ask in ("grpcio", lambda: [by_python(wait) for wait in WAITS]), ("grpc-js", by_node):
    calls.clear()
    found = ask()
    for wait, (code, text, seconds) in zip(WAITS, found):
        print(f"{name}, deadline of 2 s, told {wait} ms: {code} {text!r} after {seconds} s,",
              f"calls that the server saw: {calls.count(wait.encode())}")
    assert [answer[:2] for answer in found[:2]] == [["RESOURCE_EXHAUSTED", "three a minute"]] * 2, found
    assert found[2][0] == "DEADLINE_EXCEEDED" and "three" not in found[2][1] and found[2][2] == 2, found
    assert [calls.count(wait.encode()) for wait in WAITS] == [3, 1, 1], calls
PY
