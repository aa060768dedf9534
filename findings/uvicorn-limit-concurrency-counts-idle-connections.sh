#!/usr/bin/env bash
# uvicorn's `--limit-concurrency N` compares N with open connections, the new one included, and not with requests in
# flight. With 1 it refuses every request of an idle service. With 2, one client that keeps its connection open without
# a request shuts out everybody else. The 503 has no `Retry-After`. Who wants calls in flight must count them elsewhere.
. "$(dirname "$0")/setup"
with_python uvicorn==0.54.0
cat >app.py <<'PY'
async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})
PY
cat >try.py <<'PY'
import http.client, subprocess, sys, time

def serve(limit, port):
    arguments = ["uvicorn", "app:app", "--port", str(port), "--limit-concurrency", str(limit), "--log-level", "critical"]
    return subprocess.Popen([sys.executable, "-m", *arguments])

def get(client):
    client.request("GET", "/")
    answer = client.getresponse()
    answer.read()
    return answer

def first(port):
    for _ in range(200):
        try:
            client = http.client.HTTPConnection("127.0.0.1", port)
            return client, get(client)
        except ConnectionRefusedError:
            time.sleep(0.05)
    sys.exit("uvicorn does not start")

for limit, port in ((1, 18611), (2, 18612)):
    server = serve(limit, port)
    try:
        idle, alone = first(port)
        # Its answer is complete, and nothing is in flight.
        other = get(http.client.HTTPConnection("127.0.0.1", port))
        print(f"limit {limit}: alone {alone.status}, beside an idle connection {other.status}")
        assert alone.status == (503 if limit == 1 else 200)
        assert other.status == 503 and other.headers["Retry-After"] is None
    finally:
        server.terminate()
        server.wait()
PY
python try.py
