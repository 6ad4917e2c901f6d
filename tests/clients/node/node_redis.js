// node-redis as its README uses it, in RESP2 (its default) and RESP3. Arguments: port, path of the Unix socket.
'use strict';
const assert = require('node:assert');
const test = require('node:test');
const { createClient } = require('redis');

const port = Number(process.argv[2]);
const socket = process.argv[3];
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function open(options) {
  const client = createClient({ url: `redis://127.0.0.1:${port}`, ...options });
  client.on('error', () => {}); // a killed connection: the client opens another
  await client.connect();
  return client;
}

for (const RESP of [2, 3]) {
  const check = (name, body) =>
    test(`RESP${RESP}: ${name}`, async () => {
      const client = await open({ RESP, name: 'worker' });
      try {
        await client.flushAll();
        await body(client);
      } finally {
        client.destroy();
      }
    });

  check('connects: name, database, library, Unix socket', async (r) => {
    assert.strictEqual(await r.ping(), 'PONG');
    assert.strictEqual(await r.clientGetName(), 'worker');
    const other = await open({ RESP, url: `redis://127.0.0.1:${port}/3` });
    await other.set('k', 1);
    assert.strictEqual(await r.get('k'), null);
    other.destroy();
    const local = await open({ RESP, url: undefined, socket: { path: socket } });
    assert.strictEqual(await local.ping(), 'PONG');
    await local.close();
    assert.match(await r.sendCommand(['CLIENT', 'LIST']), /lib-name=node-redis/);
  });

  check('values and errors', async (r) => {
    assert.strictEqual(await r.set('k', 'v', { expiration: { type: 'EX', value: 100 }, condition: 'NX' }), 'OK');
    assert.strictEqual(await r.set('k', 'v', { condition: 'NX' }), null);
    assert.strictEqual(await r.hSet('h', { a: 1, b: 'two' }), 2);
    assert.deepStrictEqual({ ...(await r.hGetAll('h')) }, { a: '1', b: 'two' });
    await r.zAdd('z', [{ score: 1.5, value: 'one' }, { score: Infinity, value: 'far' }]);
    assert.strictEqual(await r.zScore('z', 'one'), 1.5);
    assert.deepStrictEqual((await r.zRangeWithScores('z', 0, -1)).map((m) => ({ ...m })),
      [{ value: 'one', score: 1.5 }, { value: 'far', score: Infinity }]);
    await r.sAdd('s', ['a', 'b']);
    assert.deepStrictEqual(new Set(await r.sMembers('s')), new Set(['a', 'b']));
    assert.ok(await r.sIsMember('s', 'a'));
    assert.deepStrictEqual(await r.mGet(['k', 'nobody']), ['v', null]);
    await assert.rejects(r.lPush('k', '1'), /WRONGTYPE/);
  });

  check('expiry of keys and fields', async (r) => {
    await r.set('k', 1, { expiration: { type: 'PX', value: 30 } });
    await r.hSet('h', { gone: 1, stays: 2 });
    assert.deepStrictEqual(await r.hpExpire('h', ['gone'], 30), [1]);
    assert.deepStrictEqual(await r.hTTL('h', 'stays'), [-1]);
    await sleep(45);
    assert.strictEqual(await r.get('k'), null);
    assert.strictEqual(await r.pTTL('k'), -2);
    assert.deepStrictEqual({ ...(await r.hGetAll('h')) }, { stays: '2' });
  });

  check('pipelines', async (r) => {
    const names = Array.from({ length: 1000 }, (_, i) => `k${i}`);
    await Promise.all(names.map((n) => r.set(n, n)));
    assert.deepStrictEqual(await Promise.all(names.map((n) => r.get(n))), names);
    const replies = await r.multi().set('a', 1).incr('a').expire('a', 10).execAsPipeline();
    assert.deepStrictEqual(replies, ['OK', 2, 1]);
  });

  check('scan iterators', async (r) => {
    const names = Array.from({ length: 500 }, (_, i) => `user:${i}`);
    await r.mSet(names.map((n) => [n, '1']));
    await r.hSet('hash', Object.fromEntries(names.map((n) => [n, n])));
    const found = new Set();
    for await (const keys of r.scanIterator({ MATCH: 'user:*', COUNT: 50 })) keys.forEach((k) => found.add(k));
    assert.deepStrictEqual(found, new Set(names));
    let fields = 0;
    for await (const some of r.hScanIterator('hash')) fields += some.length;
    assert.strictEqual(fields, 500);
  });

  check('administration', async (r) => {
    await r.set('k', 'x'.repeat(100));
    assert.match(await r.info(), /redis_version:\d/);
    assert.ok((await r.memoryUsage('k')) > 100);
    assert.strictEqual((await r.configGet('maxmemory-policy'))['maxmemory-policy'], 'noeviction');
    assert.strictEqual(await r.dbSize(), 1);
    assert.strictEqual(await r.objectEncoding('k'), 'raw');
    assert.ok((await r.clientList()).some((c) => c.name === 'worker'));
    assert.ok((await r.commandInfo(['get']))[0].arity === 2);
    assert.ok(Math.abs((await r.sendCommand(['TIME']))[0] - Date.now() / 1000) < 5);
  });

  check('reconnecting', async (r) => {
    await r.set('k', 1);
    const admin = await open({ RESP });
    const id = await r.clientId();
    assert.strictEqual(await admin.clientKill({ filter: 'ID', id }), 1);
    admin.destroy();
    await sleep(20);
    assert.strictEqual(await r.get('k'), '1');
    assert.notStrictEqual(await r.clientId(), id);
  });
}
