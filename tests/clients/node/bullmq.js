// BullMQ as an application uses it: delayed and repeated jobs, retries, priorities, events, and jobs of a worker that died.
'use strict';
const {test, after} = require('node:test');
const assert = require('node:assert');
const {fork} = require('node:child_process');
const {once} = require('node:events');
const {setTimeout: sleep} = require('node:timers/promises');
const {Queue, Worker, QueueEvents, FlowProducer} = require('bullmq');

const connection = {port: Number(process.argv[2]), host: '127.0.0.1', maxRetriesPerRequest: null};
const open = [];
const keep = thing => (open.push(thing), thing);

// A process of its own, which takes a job and is killed while it works on it.
if (process.argv[3] === 'doomed') {
    const worker = new Worker('stalls', async () => {
        process.send('working');
        await sleep(60_000);
    }, {connection, lockDuration: 400, stalledInterval: 200});
    worker.on('error', () => {});
    return;
}

after(async () => {
    for (const thing of open.reverse()) await thing.close();
});

async function finished(queue, count, worker) {
    const done = [];
    await new Promise((resolve, reject) => {
        worker.on('completed', job => {
            done.push({name: job.name, at: Date.now()});
            if (done.length === count) resolve();
        });
        worker.on('error', reject);
    });
    return done;
}

test('jobs in order, and their results', async () => {
    const queue = keep(new Queue('plain', {connection}));
    const events = keep(new QueueEvents('plain', {connection}));
    await events.waitUntilReady();
    const jobs = await queue.addBulk([...Array(50).keys()].map(i => ({name: `n${i}`, data: {i}})));
    const worker = keep(new Worker('plain', async job => job.data.i * 2, {connection, concurrency: 5}));
    const results = await Promise.all(jobs.map(job => job.waitUntilFinished(events, 10_000)));
    assert.deepStrictEqual(results, [...Array(50).keys()].map(i => i * 2));
    assert.strictEqual(await queue.getCompletedCount(), 50);
    assert.deepStrictEqual(await queue.getJobCounts('waiting', 'active', 'delayed', 'failed'),
        {waiting: 0, active: 0, delayed: 0, failed: 0});
    await worker.close();
});

test('a delayed job waits, and not for long', async () => {
    const queue = keep(new Queue('delayed', {connection}));
    const worker = keep(new Worker('delayed', async () => 1, {connection}));
    await worker.waitUntilReady();
    const start = Date.now();
    const finish = finished(queue, 3, worker);
    await queue.add('late', {}, {delay: 600});
    await queue.add('soon', {}, {delay: 200});
    await queue.add('now', {});
    const done = await finish;
    assert.deepStrictEqual(done.map(d => d.name), ['now', 'soon', 'late']);
    assert.ok(done[1].at - start >= 195 && done[2].at - start >= 595, JSON.stringify([start, done]));
    assert.ok(done[2].at - start < 3000);
});

test('a repeated job comes again and again', async () => {
    const queue = keep(new Queue('repeated', {connection}));
    const worker = keep(new Worker('repeated', async () => 1, {connection}));
    const finish = finished(queue, 3, worker);
    await queue.upsertJobScheduler('every', {every: 150}, {name: 'tick'});
    const done = await finish;
    assert.ok(done[2].at - done[0].at >= 250, JSON.stringify(done));
    assert.strictEqual((await queue.getJobSchedulers()).length, 1);
    assert.ok(await queue.removeJobScheduler('every'));
});

test('retries with a pause, then failure', async () => {
    const queue = keep(new Queue('retries', {connection}));
    let tries = 0;
    const worker = keep(new Worker('retries', async () => {
        tries++;
        throw new Error('no');
    }, {connection}));
    const job = await queue.add('x', {}, {attempts: 3, backoff: {type: 'fixed', delay: 50}});
    await new Promise(resolve => worker.on('failed', j => j.attemptsMade === 3 && resolve()));
    assert.strictEqual(tries, 3);
    assert.strictEqual(await job.getState(), 'failed');
});

test('priorities, and a flow of parents and children', async () => {
    const queue = keep(new Queue('priorities', {connection}));
    for (const priority of [3, 1, 2]) await queue.add(`p${priority}`, {}, {priority});
    const worker = keep(new Worker('priorities', async () => 1, {connection}));
    assert.deepStrictEqual((await finished(queue, 3, worker)).map(d => d.name), ['p1', 'p2', 'p3']);
    const flow = keep(new FlowProducer({connection}));
    const order = [];
    const children = keep(new Worker('flow', async job => {
        order.push(job.name);
        return job.name;
    }, {connection}));
    const finish = finished(queue, 3, children);
    await flow.add({name: 'parent', queueName: 'flow', children: [{name: 'a', queueName: 'flow'}, {name: 'b', queueName: 'flow'}]});
    await finish;
    assert.strictEqual(order[2], 'parent');
});

test('a worker dies: its job is taken up by another', async () => {
    const queue = keep(new Queue('stalls', {connection}));
    const job = await queue.add('precious', {});
    const doomed = fork(__filename, [process.argv[2], 'doomed']);
    await once(doomed, 'message');
    doomed.kill('SIGKILL');
    const worker = keep(new Worker('stalls', async () => 'saved', {connection, stalledInterval: 200, lockDuration: 1000}));
    const stalled = once(worker, 'stalled');
    await finished(queue, 1, worker);
    await stalled;
    assert.strictEqual(await job.getState(), 'completed');
});

test('finished jobs are removed by age and number', async () => {
    const queue = keep(new Queue('removed', {connection}));
    const worker = keep(new Worker('removed', async () => 1, {connection}));
    const finish = finished(queue, 20, worker);
    for (let i = 0; i < 20; i++) await queue.add('x', {}, {removeOnComplete: {count: 5}});
    await finish;
    assert.strictEqual(await queue.getCompletedCount(), 5);
    await worker.close();
    await queue.obliterate({force: true});
});
