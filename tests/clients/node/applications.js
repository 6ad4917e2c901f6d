// What applications do with TTLs: locks (redlock), rate limits (rate-limiter-flexible), sessions (connect-redis).
'use strict';
const {test, after} = require('node:test');
const assert = require('node:assert');
const {setTimeout: sleep} = require('node:timers/promises');
const Redis = require('ioredis');
const {createClient} = require('redis');
const Redlock = require('redlock');
const {RateLimiterRedis, RateLimiterQueue} = require('rate-limiter-flexible');
const express = require('express');
const session = require('express-session');
const {RedisStore} = require('connect-redis');

const port = Number(process.argv[2]);
const redis = new Redis(port);
after(() => redis.quit());

test('redlock: one holder at a time, the lock ends with its TTL', async () => {
    const locks = new Redlock([redis], {retryCount: 0});
    const lock = await locks.lock('lock:a', 300);
    await assert.rejects(locks.lock('lock:a', 300), {name: 'LockError'});
    const longer = await lock.extend(500);
    assert.ok(await redis.pttl('lock:a') > 300);
    await longer.unlock();
    assert.strictEqual(await redis.exists('lock:a'), 0);
    await locks.lock('lock:a', 100);
    const patient = new Redlock([redis], {retryCount: 50, retryDelay: 20, retryJitter: 5});
    const start = Date.now();
    const second = await patient.lock('lock:a', 1000);       // when the first one has expired
    assert.ok(Date.now() - start < 1500);
    await second.unlock();
    await assert.rejects(lock.unlock());
});

test('redlock: many want it, never two have it', async () => {
    const locks = new Redlock([redis], {retryCount: 200, retryDelay: 5, retryJitter: 5});
    let inside = 0, most = 0, total = 0;
    await Promise.all([...Array(20)].map(async () => {
        const lock = await locks.lock('lock:b', 2000);
        most = Math.max(most, ++inside);
        await sleep(2);
        inside--;
        total++;
        await lock.unlock();
    }));
    assert.deepStrictEqual([most, total], [1, 20]);
});

test('rate limits: points are used up, and come back in time', async () => {
    const limiter = new RateLimiterRedis({storeClient: redis, keyPrefix: 'rl', points: 5, duration: 1});
    const start = Date.now();
    for (let i = 0; i < 5; i++) assert.strictEqual((await limiter.consume('me')).remainingPoints, 4 - i);
    const refused = await limiter.consume('me').then(() => null, r => r);
    if (Date.now() - start < 900) {
        assert.ok(refused && refused.msBeforeNext > 0 && refused.msBeforeNext <= 1000);
        await sleep(refused.msBeforeNext + 5);
    }
    assert.ok((await limiter.consume('me')).remainingPoints >= 3);
    assert.strictEqual((await limiter.get('me')).consumedPoints >= 1, true);
    const blocking = new RateLimiterRedis({storeClient: redis, keyPrefix: 'bl', points: 1, duration: 1, blockDuration: 30});
    await blocking.consume('him');
    const blocked = await blocking.consume('him').then(() => null, r => r);
    assert.ok(blocked.msBeforeNext > 25_000);
    const queue = new RateLimiterQueue(new RateLimiterRedis({storeClient: redis, keyPrefix: 'q', points: 10, duration: 1}));
    await Promise.all([...Array(10)].map(() => queue.removeTokens(1)));
});

test('rate limits with node-redis', async () => {
    const client = createClient({url: `redis://127.0.0.1:${port}`});
    await client.connect();
    const limiter = new RateLimiterRedis({storeClient: client, useRedisPackage: true, keyPrefix: 'n', points: 2, duration: 5});
    await limiter.consume('x');
    await limiter.consume('x');
    await assert.rejects(limiter.consume('x'), r => r.remainingPoints === 0);
    await client.close();
});

test('sessions: kept while they are used, gone when they expire', async () => {
    const client = createClient({url: `redis://127.0.0.1:${port}`});
    await client.connect();
    const app = express();
    app.use(session({
        store: new RedisStore({client, prefix: 'sess:'}), secret: 'x', resave: false, saveUninitialized: false,
        rolling: true, cookie: {maxAge: 700},
    }));
    app.get('/', (req, res) => {
        req.session.views = (req.session.views || 0) + 1;
        res.json({views: req.session.views, id: req.sessionID});
    });
    app.get('/out', (req, res) => req.session.destroy(() => res.json({})));
    const server = app.listen(0);
    const base = `http://127.0.0.1:${server.address().port}`;
    let cookie;
    const visit = async path => {
        const reply = await fetch(base + path, {headers: cookie ? {cookie} : {}});
        const set = reply.headers.get('set-cookie');
        if (set) cookie = set.split(';')[0];
        return reply.json();
    };
    try {
        const first = await visit('/');
        assert.deepStrictEqual([first.views, (await visit('/')).views], [1, 2]);
        const left = await client.pTTL(`sess:${first.id}`);
        assert.ok(left > 0 && left <= 1000, String(left));
        await sleep(400);
        assert.strictEqual((await visit('/')).views, 3);     // and lives on
        await sleep(400);
        assert.strictEqual((await visit('/')).views, 4);
        await sleep(1100);
        assert.strictEqual((await visit('/')).views, 1);     // a new one
        await visit('/out');
        assert.strictEqual((await client.keys('sess:*')).length, 0);
    } finally {
        server.close();
        await client.close();
    }
});
