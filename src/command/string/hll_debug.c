/* PFDEBUG and PFSELFTEST, for test suites: how a HyperLogLog is stored, and whether the arithmetic is
 * right. */
#include <math.h>

#include "command/commands.h"
#include "command/string/hll.h"
#include "command/string/strval.h"

/* -- PFDEBUG ---------------------------------------------------------------------------- */

struct hll_debug {
    struct ctx *c;
    bytes key;
    struct key_ref ref;
    struct buf h; /* a copy */
};

/* False: an error was replied. */
static bool hll_debug_open(struct hll_debug *d)
{
    struct str_view view;
    err found = ctx_write(d->c, d->key, TYPE_STRING, &d->ref);
    if (found == ERR_TYPE) return false;
    if (found == ERR_NOT_FOUND) {
        reply_error(d->c->out, "ERR The specified key does not exist");
        return false;
    }
    buf_append_bytes(&d->h, strval_get(d->c, &d->ref, &view));
    if (hll_check(buf_bytes(&d->h))) return true;
    reply_error(d->c->out, "WRONGTYPE Key is not a valid HyperLogLog string value.");
    return false;
}

/* Makes the key's value dense, which is a change like any other. False: an error was replied. */
static bool hll_debug_make_dense(struct hll_debug *d, bool *changed)
{
    struct ctx *c = d->c;
    *changed = !hll_is_dense(buf_bytes(&d->h));
    if (!*changed) return true;
    if (!hll_make_dense(&d->h)) {
        reply_error(c->out, "INVALIDOBJ Corrupted HLL object detected");
        return false;
    }
    memcpy(strval_edit(c, d->key, &d->ref, d->h.n), d->h.p, d->h.n);
    ctx_changed(c, d->key, 0, "pfdebug");
    CTX_EFFECT(c, BYTES_LIT("PFDEBUG"), BYTES_LIT("TODENSE"), d->key);
    return true;
}

static void hll_debug_getreg(struct hll_debug *d)
{
    bool changed;
    if (!hll_debug_make_dense(d, &changed)) return;
    reply_array(d->c->out, HLL_REGISTERS);
    for (u32 i = 0; i < HLL_REGISTERS; i++) reply_int(d->c->out, hll_dense_get(d->h.p, i));
}

static void hll_debug_todense(struct hll_debug *d)
{
    bool changed;
    if (hll_debug_make_dense(d, &changed)) reply_int(d->c->out, changed);
}

static void hll_debug_decode(struct hll_debug *d)
{
    struct buf text = {0};
    if (hll_is_dense(buf_bytes(&d->h))) {
        reply_error(d->c->out, "ERR HLL encoding is not sparse");
        return;
    }
    hll_print_runs(buf_bytes(&d->h), &text);
    reply_bulk(d->c->out, buf_bytes(&text));
    buf_release(&text);
}

static void hll_debug_run(struct hll_debug *d)
{
    bytes what = d->c->argv[1];
    if (bytes_is(what, "getreg")) hll_debug_getreg(d);
    else if (bytes_is(what, "decode")) hll_debug_decode(d);
    else if (bytes_is(what, "encoding"))
        reply_simple(d->c->out, hll_is_dense(buf_bytes(&d->h)) ? "dense" : "sparse");
    else if (bytes_is(what, "todense")) hll_debug_todense(d);
    else reply_errorf(d->c->out, "ERR Unknown PFDEBUG subcommand '%.*s'", (int)what.n, what.p);
}

void cmd_pfdebug(struct ctx *c)
{
    struct hll_debug d = {.c = c, .key = c->argv[2]};
    if (hll_debug_open(&d)) hll_debug_run(&d);
    buf_release(&d.h);
}

/* -- PFSELFTEST --------------------------------------------------------------------------- */

#define SELFTEST_SEED 1
#define SELFTEST_ELEMENTS 100000
#define SELFTEST_ERROR (4 * 1.04 / 128) /* four standard errors; 128 is the root of the number of registers */

/* Registers are six bits each and share bytes: checks that each keeps its value. */
static bool selftest_registers(void)
{
    static const u8 empty[HLL_DENSE_LEN];
    struct buf h = {0};
    u8 ranks[HLL_REGISTERS];
    u64 rng = SELFTEST_SEED;
    bool ok = true;
    buf_append(&h, empty, sizeof empty);
    for (u32 i = 0; i < HLL_REGISTERS; i++) hll_dense_set(h.p, i, ranks[i] = (u8)rand_below(&rng, 64));
    for (u32 i = 0; i < HLL_REGISTERS; i++) ok &= hll_dense_get(h.p, i) == ranks[i];
    buf_release(&h);
    return ok;
}

/* A sparse and a dense one get the same elements: their counts must be equal, and about right. */
static bool selftest_counts(void)
{
    struct buf sparse = {0}, dense = {0};
    bool ok = true;
    hll_init(&sparse);
    hll_init(&dense);
    ok &= hll_make_dense(&dense);
    for (u64 n = 1, check = 1; n <= SELFTEST_ELEMENTS && ok; n++) {
        u8 rank;
        u64 a, b;
        u32 reg = hll_register(bytes_of(&n, sizeof n), &rank);
        ok &= hll_raise(&sparse, HLL_DENSE_LEN, reg, rank) != HLL_CORRUPT;
        ok &= hll_raise(&dense, 0, reg, rank) != HLL_CORRUPT;
        if (n < check) continue;
        check *= 10;
        ok &= hll_count(buf_bytes(&sparse), &a) && hll_count(buf_bytes(&dense), &b) && a == b;
        ok &= fabs((double)a - (double)n) <= MAX((double)n * SELFTEST_ERROR, 1);
    }
    buf_release(&sparse);
    buf_release(&dense);
    return ok;
}

void cmd_pfselftest(struct ctx *c)
{
    if (selftest_registers() && selftest_counts()) reply_ok(c->out);
    else reply_error(c->out, "ERR TESTFAILED HyperLogLog registers or counts are wrong");
}
