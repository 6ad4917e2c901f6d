'use strict';
const {createCluster} = require('redis');
const {attempt, check, run, short} = require('./cluster_common.js');

const cluster = createCluster({
    rootNodes: [{url: `redis://${process.argv[2]}`}], maxCommandRedirections: 100,
    defaults: {socket: {connectTimeout: 2000, reconnectStrategy: 100}},
});
cluster.on('error', e => console.error(String(e)));

// Its transactions do not follow MOVED, which only an ordinary command does.
const transaction = async i => {
    try {
        return await cluster.multi().hSet('{nr}h', 'f', String(i)).hGet('{nr}h', 'f').exec();
    } catch (e) {
        if (!String(e.message).startsWith('MOVED')) throw e;
        await cluster.hGet('{nr}h', 'f');
        return transaction(i);
    }
};

cluster.connect().then(() => run(async i => {
    const key = `nr:${i % 40}`;
    await attempt(() => cluster.set(key, String(i), {EX: 1000}));
    check(key, await attempt(() => cluster.get(key)), i);
    const ttl = await attempt(() => cluster.ttl(key));
    if (!(ttl > 900 && ttl <= 1000)) check(`${key}'s TTL`, ttl, 'about 1000');
    await short(i, `nr:s${i % 40}`, key => cluster.set(key, 'x', {PX: 50}), key => cluster.get(key));
    await attempt(() => Promise.all([...Array(20).keys()].map(j => cluster.set(`nr:p${j}`, String(i)))));
    check('{nr}h', (await attempt(() => transaction(i)))[1], i);
}));
