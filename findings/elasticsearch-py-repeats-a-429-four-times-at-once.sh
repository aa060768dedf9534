#!/usr/bin/env bash
# Elasticsearch answers 429 when its queues are full, and its client for Python repeats such requests by default: three
# times within milliseconds, whatever `Retry-After` says, and writes as well as reads. The error at the end has the
# field, so that only the caller can obey it. A cluster or a limiter that asks for patience gets four requests for one.
. "$(dirname "$0")/setup"
with_python elasticsearch==9.5.1 elastic-transport==9.4.2
python - <<'PY'
import threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from elasticsearch import ApiError, Elasticsearch

times = []

class Busy(BaseHTTPRequestHandler):
    def do_POST(self):
        times.append(time.monotonic())
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(429)
        fields = {"retry-after": "2", "x-elastic-product": "Elasticsearch", "content-type": "application/json"}
        for field in {**fields, "content-length": "2"}.items():
            self.send_header(*field)
        self.end_headers()
        self.wfile.write(b"{}")

    do_PUT = do_POST

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Busy)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = Elasticsearch(f"http://127.0.0.1:{server.server_port}")
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
