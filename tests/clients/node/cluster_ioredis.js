'use strict';
const Redis = require('ioredis');
const {attempt, check, run, short} = require('./cluster_common.js');

const [host, port] = process.argv[2].split(':');
const cluster = new Redis.Cluster([{host, port: Number(port)}], {
    maxRedirections: 100, retryDelayOnClusterDown: 100, retryDelayOnFailover: 100, retryDelayOnTryAgain: 100,
});
cluster.on('error', e => console.error(String(e)));

run(async i => {
    const key = `io:${i % 40}`;
    await attempt(() => cluster.set(key, i, 'EX', 1000));
    check(key, await attempt(() => cluster.get(key)), i);
    const ttl = await attempt(() => cluster.ttl(key));
    if (!(ttl > 900 && ttl <= 1000)) check(`${key}'s TTL`, ttl, 'about 1000');
    await short(i, `io:s${i % 40}`, key => cluster.set(key, 'x', 'PX', 50), key => cluster.get(key));
    await attempt(async () => {
        const p = cluster.pipeline();
        for (let j = 0; j < 20; j++) p.set(`{io}p${j}`, i);
        for (const [error] of await p.exec()) if (error) throw error;
    });
    const replies = await attempt(() => cluster.multi().hset('{io}h', 'f', i).hget('{io}h', 'f').exec());
    check('{io}h', replies[1][1], i);
});
