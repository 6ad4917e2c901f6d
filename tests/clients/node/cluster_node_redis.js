'use strict';
const {createCluster} = require('redis');
const {attempt, check, run} = require('./cluster_common.js');

const cluster = createCluster({
    rootNodes: [{url: `redis://${process.argv[2]}`}], maxCommandRedirections: 100,
    defaults: {disableOfflineQueue: false, socket: {connectTimeout: 2000, reconnectStrategy: tries => tries < 5 && 100}},
});
cluster.on('error', e => console.error(String(e)));

cluster.connect().then(() => run(async i => {
    const key = `nr:${i % 40}`;
    await attempt(() => cluster.set(key, String(i), {EX: 1000}));
    check(key, await attempt(() => cluster.get(key)), i);
    const ttl = await attempt(() => cluster.ttl(key));
    if (!(ttl > 900 && ttl <= 1000)) check(`${key}'s TTL`, ttl, 'about 1000');
    await attempt(() => Promise.all([...Array(20).keys()].map(j => cluster.set(`nr:p${j}`, String(i)))));
    const replies = await attempt(() => cluster.multi().hSet('{nr}h', 'f', String(i)).hGet('{nr}h', 'f').exec());
    check('{nr}h', replies[1], i);
}));
