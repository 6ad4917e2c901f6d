// What the cluster clients of Node do in test_cluster_clients.py, which tells what the lines mean.
'use strict';
const readline = require('node:readline');
const {setTimeout: sleep} = require('node:timers/promises');

let turns = 0, errors = 0, wrong = 0;

exports.check = (what, got, wanted) => {
    if (String(got) === String(wanted)) return;
    wrong++;
    console.error(`${what} is ${got} and not ${wanted}`);
};

// Until it succeeds.
exports.attempt = async f => {
    for (;;) {
        try {
            return await f();
        } catch (e) {
            errors++;
            console.error(String(e));
            await sleep(50);
        }
    }
};

// A key that lives for 50 ms: it is gone when that time is over, and was not gone before.
exports.short = async (i, key, set, get) => {
    const begin = performance.now();
    await exports.attempt(() => set(key));
    const set_by = performance.now();
    const got = await exports.attempt(() => get(key));
    if (got === null && performance.now() < begin + 50) exports.check(key, got, 'x');
    if (i % 10) return;
    await sleep(Math.max(0, set_by + 51 - performance.now()));
    exports.check(key, await exports.attempt(() => get(key)), null);
};

exports.run = turn => {
    (async () => {
        for (let i = 1; ; i++) {
            await turn(i);
            turns++;
        }
    })().catch(e => {
        console.error(e);
        process.exit(1);
    });
    const lines = readline.createInterface({input: process.stdin});
    lines.on('line', line => line.trim() === 'look' && console.log(turns, errors, wrong));
    lines.on('close', () => process.exit(0));
};
