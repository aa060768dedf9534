#!/usr/bin/env bash
# Flask-Limiter with a fixed window and koa-ratelimit cut the end of a window to a whole second before they tell the wait.
# A client that waits for `Retry-After` arrives up to a second before the window is over, is refused once more, and is
# told 0: many clients take that for "at once", and use up their tries within milliseconds. A wait has to be rounded up.
. "$(dirname "$0")/setup"
with_python flask==3.1.3 flask-limiter==4.1.1 limits==5.8.0
with_node koa@3.3.0 koa-ratelimit@6.0.0

cat >flask_server.py <<'PY'
import sys
from flask import Flask
from flask_limiter import Limiter
app = Flask("service")
limiter = Limiter(lambda: "alice", app=app, headers_enabled=True, strategy="fixed-window", storage_uri="memory://")

@app.get("/")
@limiter.limit("1/3 seconds")
def hello():
    return "hi"

app.run(port=int(sys.argv[1]))
PY
cat >koa_server.js <<'JS'
const Koa = require('koa');
const ratelimit = require('koa-ratelimit');
const app = new Koa();
app.use(ratelimit({ driver: 'memory', db: new Map(), duration: 3000, max: 1, id: () => 'alice' }));
app.use((context) => { context.body = 'hi'; });
app.listen(Number(process.argv[2]), '127.0.0.1');
JS
python flask_server.py 18431 >/dev/null 2>&1 &
node koa_server.js 18432 &

python - <<'PY'
import time, urllib.error, urllib.request

def call(port, path=""):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
            return answer.status, None
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get("Retry-After")

for name, port in (("Flask-Limiter", 18431), ("koa-ratelimit", 18432)):
    for _ in range(100):
        try:
            call(port)
            break
        except urllib.error.URLError:
            time.sleep(0.1)
    # A window that begins late in a second, with nothing left of the one before.
    time.sleep(4)
    time.sleep((0.7 - time.time()) % 1)
    answers = [call(port)]
    time.sleep(0.6)
    answers.append(call(port))
    time.sleep(int(answers[1][1]))
    answers.append(call(port))
    print(name, answers)
    assert [status for status, _ in answers] == [200, 429, 429], answers
    assert answers[2][1] == "0", answers
PY
