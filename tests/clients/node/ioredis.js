// ioredis as its README uses it. Arguments: port, path of the Unix socket.
'use strict';
const assert = require('node:assert');
const { once } = require('node:events');
const test = require('node:test');
const Redis = require('ioredis');

const port = Number(process.argv[2]);
const socket = process.argv[3];
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const all = async (stream) => {
  const found = [];
  for await (const some of stream) found.push(...some);
  return found;
};

async function withClient(options, body) {
  const client = new Redis({ port, maxRetriesPerRequest: 3, ...options });
  try {
    await client.flushall();
    await body(client);
  } finally {
    client.disconnect();
  }
}

test('connects: ready after INFO, name, database, Unix socket', () =>
  withClient({ connectionName: 'worker', db: 2 }, async (r) => {
    assert.strictEqual(r.status, 'ready');
    assert.strictEqual(await r.client('GETNAME'), 'worker');
    await r.set('k', 'in database 2');
    const other = new Redis(`redis://127.0.0.1:${port}/2`);
    assert.strictEqual(await other.get('k'), 'in database 2');
    other.disconnect();
    const local = new Redis(socket);
    assert.strictEqual(await local.get('k'), null);
    assert.strictEqual(await local.quit(), 'OK');
  }));

test('values and errors', () =>
  withClient({}, async (r) => {
    assert.strictEqual(await r.set('k', 'v', 'EX', 100, 'NX'), 'OK');
    assert.strictEqual(await r.set('k', 'v', 'EX', 100, 'NX'), null);
    const bytes = Buffer.from([0, 255, 13, 10]);
    await r.set('binary', bytes);
    assert.deepStrictEqual(await r.getBuffer('binary'), bytes);
    await r.hset('h', { a: 1, b: 'two' });
    assert.deepStrictEqual(await r.hgetall('h'), { a: '1', b: 'two' });
    await r.zadd('z', 1, 'one', 2, 'two');
    assert.deepStrictEqual(await r.zrange('z', 0, -1, 'WITHSCORES'), ['one', '1', 'two', '2']);
    assert.deepStrictEqual(await r.mget('k', 'nobody'), ['v', null]);
    await assert.rejects(r.lpush('k', 1), /WRONGTYPE/);
    await assert.rejects(r.call('NOSUCH'), /unknown command/);
  }));

test('expiry', () =>
  withClient({}, async (r) => {
    await r.set('k', 1, 'PX', 30);
    await r.set('l', 1);
    assert.strictEqual(await r.pexpire('l', 30), 1);
    assert.ok((await r.pttl('k')) <= 30);
    await sleep(45);
    assert.deepStrictEqual(await r.mget('k', 'l'), [null, null]);
    assert.strictEqual(await r.ttl('k'), -2);
    // On disk they are reclaimed in the background, a moment later.
    for (let i = 0; i < 50 && (await r.dbsize()); i++) await sleep(20);
    assert.strictEqual(await r.dbsize(), 0);
  }));

test('pipeline, automatic pipelines, many at once', () =>
  withClient({ enableAutoPipelining: true }, async (r) => {
    const pipeline = r.pipeline();
    for (let i = 0; i < 1000; i++) pipeline.set(`k${i}`, i).expire(`k${i}`, 100);
    pipeline.lpush('k0', 1);
    const replies = await pipeline.exec();
    assert.strictEqual(replies.length, 2001);
    assert.deepStrictEqual(replies[1], [null, 1]);
    assert.match(replies[2000][0].message, /WRONGTYPE/);
    const values = await Promise.all(Array.from({ length: 1000 }, (_, i) => r.get(`k${i}`)));
    assert.ok(values.every((v, i) => v === String(i)));
  }));

test('scan streams', () =>
  withClient({}, async (r) => {
    const names = Array.from({ length: 500 }, (_, i) => `user:${i}`);
    await r.mset(...names.flatMap((n) => [n, 1]), 'other', 1);
    await r.sadd('set', ...names);
    await r.hset('hash', Object.fromEntries(names.map((n) => [n, n])));
    assert.deepStrictEqual(new Set(await all(r.scanStream({ match: 'user:*', count: 50 }))), new Set(names));
    assert.deepStrictEqual(await all(r.scanStream({ type: 'hash' })), ['hash']);
    assert.strictEqual(new Set(await all(r.sscanStream('set'))).size, 500);
    assert.strictEqual((await all(r.hscanStream('hash'))).length, 1000);
  }));

test('key prefix, monitor, reconnecting', () =>
  withClient({ keyPrefix: 'app:' }, async (r) => {
    const plain = new Redis({ port });
    const monitor = await plain.monitor();
    const seen = once(monitor, 'monitor');
    await r.set('k', 1);
    assert.deepStrictEqual((await seen)[1], ['set', 'app:k', '1']);
    monitor.disconnect();
    assert.strictEqual(await plain.get('app:k'), '1');
    const id = await r.client('ID');
    assert.strictEqual(await plain.client('KILL', 'ID', id), 1);
    assert.strictEqual(await r.get('k'), '1');
    assert.notStrictEqual(await r.client('ID'), id);
    plain.disconnect();
  }));
