#!/usr/bin/env bash
# A limiter refuses an upload before its body has come. Over HTTP/2 the server resets the stream then, with NO_ERROR after
# the whole answer: stop sending, and read. httpx keeps waiting for leave to send the rest, and raises `ReadTimeout` for a
# 429 that it has received. Small bodies and HTTP/1.1 get the 429. Who repeats time-outs repeats the upload at once.
. "$(dirname "$0")/setup"
with_python 'httpx[http2]==0.28.1' httpcore==1.0.9 h2==4.4.1
with_node fastify@5.12.8 @fastify/rate-limit@11.2.0
cat >server.mjs <<'JS'
import Fastify from 'fastify';
import rateLimit from '@fastify/rate-limit';

for (const [port, http2] of [[18741, true], [18742, false]]) {
  const app = Fastify({ http2 });
  await app.register(rateLimit, { max: 1, timeWindow: '1 hour' });
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_, body, done) => done(null, body));
  app.post('/', async ({ body }) => ({ read: body.length }));
  await app.listen({ port, host: '127.0.0.1' });
}
JS
node server.mjs &
cat >raw.mjs <<'JS'
// Node's own client, which reads what httpx does not.
import { connect } from 'node:http2';

const session = connect('http://127.0.0.1:18741');
const upload = session.request({ ':method': 'POST', ':path': '/', 'content-type': 'application/octet-stream' });
let status;
upload.on('response', (fields) => { status = fields[':status']; });
upload.on('close', () => {
  console.log(status, 'reset with', upload.rstCode);
  process.exit(0);
});
upload.resume();
upload.end(Buffer.alloc(1_000_000));
JS
cat >try.py <<'PY'
import subprocess, time
import httpx

def upload(port, size):
    with httpx.Client(http1=port == 18742, http2=port == 18741, timeout=3) as client:
        start = time.monotonic()
        try:
            answer = client.post(f"http://127.0.0.1:{port}/", content=bytes(size), headers={"content-type": "a/b"})
            answer = f"{answer.status_code} {answer.http_version}"
        except httpx.TimeoutException as error:
            answer = type(error).__name__
        return answer, round(time.monotonic() - start)

for port in (18741, 18742):
    for _ in range(200):
        try:
            first = upload(port, 1000)
            break
        except httpx.ConnectError:
            time.sleep(0.05)
    refused = {size: upload(port, size) for size in (1000, 1_000_000)}
    print(f"port {port}: admitted {first}, refused {refused}")
    if port == 18742:
        assert refused == {1000: ("429 HTTP/1.1", 0), 1_000_000: ("429 HTTP/1.1", 0)}, refused
    else:
        assert refused == {1000: ("429 HTTP/2", 0), 1_000_000: ("ReadTimeout", 3)}, refused
answer = subprocess.run(["node", "raw.mjs"], capture_output=True, text=True, timeout=60).stdout.strip()
print("Node's client over HTTP/2:", answer)
assert answer == "429 reset with 0", answer
PY
python try.py
