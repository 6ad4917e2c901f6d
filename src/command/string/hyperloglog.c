/* PFADD PFCOUNT PFMERGE: HyperLogLogs kept in strings (command/string/hll.h). */
#include "command/commands.h"
#include "command/string/hll.h"
#include "command/string/strval.h"

static void reply_corrupt(struct ctx *c)
{
    reply_error(c->out, "INVALIDOBJ Corrupted HLL object detected");
}

/* The HyperLogLog under a key that was looked up, empty bytes if it is absent.
 * False: an error was replied. */
static bool open_hll(struct ctx *c, err found, struct key_ref *ref, struct str_view *view, bytes *h)
{
    if (found == ERR_TYPE) return false;
    *h = strval_get(c, ref, view);
    if (found == OK && !hll_check(*h)) {
        reply_error(c->out, "WRONGTYPE Key is not a valid HyperLogLog string value.");
        return false;
    }
    return true;
}

/* Replaces the key's value by a HyperLogLog made outside the engine. */
static void hll_store(struct ctx *c, bytes key, struct key_ref *ref, const struct buf *h, u64 changes)
{
    memcpy(strval_edit(c, key, ref, h->n), h->p, h->n);
    ctx_changed_by(c, changes, key, NOTIFY_STRING, "pfadd");
}

/* -- PFADD -------------------------------------------------------------------------- */

/* A dense one never changes its length: it is changed in place, and only if
 * there is anything to change. */
static void add_dense(struct ctx *c, struct key_ref *ref, bytes h)
{
    char *writable = NULL;
    u64 changes = 0;
    for (int i = 2; i < c->argc; i++) {
        u8 rank;
        u32 reg = hll_register(c->argv[i], &rank);
        if (hll_dense_get(writable ? writable : h.p, reg) >= rank) continue;
        if (!writable) writable = strval_edit(c, c->argv[1], ref, h.n);
        hll_dense_set(writable, reg, rank);
        changes++;
    }
    if (writable) {
        hll_drop_cache(writable);
        ctx_changed_by(c, changes, c->argv[1], NOTIFY_STRING, "pfadd");
    }
    reply_int(c->out, writable != NULL);
}

/* A sparse or new one is changed in a copy; it may become dense. Elements before the one that met a corrupt
 * run stay added, as in Redis. */
static void add_sparse(struct ctx *c, struct key_ref *ref, bytes old)
{
    struct buf h = {0};
    u64 changes = old.n == 0; /* a new key is a change */
    enum hll_raised raised = HLL_SAME;
    if (old.n)
        buf_append_bytes(&h, old);
    else
        hll_init(&h);
    for (int i = 2; i < c->argc && raised != HLL_CORRUPT; i++) {
        u8 rank;
        u32 reg = hll_register(c->argv[i], &rank);
        raised = hll_raise(&h, c->ks->hll_sparse_max, reg, rank);
        changes += raised == HLL_RAISED;
    }
    if (changes) {
        hll_drop_cache(h.p);
        hll_store(c, c->argv[1], ref, &h, changes);
    }
    if (raised == HLL_CORRUPT)
        reply_corrupt(c);
    else
        reply_int(c->out, changes > 0);
    buf_release(&h);
}

void cmd_pfadd(struct ctx *c)
{
    struct key_ref ref;
    struct str_view view;
    bytes h;
    err found = ctx_write(c, c->argv[1], TYPE_STRING, &ref);
    if (!open_hll(c, found, &ref, &view, &h)) return;
    if (h.n && hll_is_dense(h))
        add_dense(c, &ref, h);
    else
        add_sparse(c, &ref, h);
}

/* -- PFCOUNT PFMERGE ------------------------------------------------------------------ */

/* The union of the keys argv[1…]; *dense tells whether one of them is. False:
 * an error was replied. */
static bool hll_unite(struct ctx *c, u8 ranks[HLL_REGISTERS], bool *dense)
{
    memset(ranks, 0, HLL_REGISTERS);
    *dense = false;
    for (int i = 1; i < c->argc; i++) {
        struct key_ref ref;
        struct str_view view;
        bytes h;
        err found = ctx_read(c, c->argv[i], TYPE_STRING, &ref);
        if (!open_hll(c, found, &ref, &view, &h)) return false;
        if (found != OK) continue;
        *dense |= hll_is_dense(h);
        if (!hll_merge(h, ranks)) {
            reply_corrupt(c);
            return false;
        }
    }
    return true;
}

/* Counting one key caches the result in its header, where allowed: this changes the data, but has no event.
 * The effect is the bytes written: another machine may estimate differently, and no read belongs in the
 * journal. */
static void keep_count(struct ctx *c, bytes key, struct key_ref *ref, size_t len, u64 count)
{
    char *h = strval_edit(c, key, ref, len), at[NUM_I64_LEN];
    hll_set_cache(h, count);
    ctx_changed(c, key, 0, "pfcount");
    CTX_EFFECT(c, BYTES_LIT("SETRANGE"), key, bytes_of(at, num_print_i64(at, HLL_CACHE_AT)),
               bytes_of(h + HLL_CACHE_AT, HLL_CACHE_LEN));
}

static void count_one(struct ctx *c, bytes key)
{
    struct key_ref ref;
    struct str_view view;
    bytes h;
    u64 count = 0;
    err found = ctx_read(c, key, TYPE_STRING, &ref);
    if (!open_hll(c, found, &ref, &view, &h)) return;
    if (found == OK && !hll_cached(h, &count)) {
        if (!hll_count(h, &count)) {
            reply_corrupt(c);
            return;
        }
        if (!c->keeps_nothing) keep_count(c, key, &ref, h.n, count);
    }
    reply_int(c->out, (i64)count);
}

void cmd_pfcount(struct ctx *c)
{
    u8 ranks[HLL_REGISTERS];
    bool dense;
    if (c->argc == 2)
        count_one(c, c->argv[1]);
    else if (hll_unite(c, ranks, &dense)) reply_int(c->out, (i64)hll_count_ranks(ranks));
}

/* The target is one of the inputs: its registers can only rise, in Redis's order, which a sparse one's bytes
 * depend on. */
void cmd_pfmerge(struct ctx *c)
{
    u8 ranks[HLL_REGISTERS];
    bool dense;
    struct key_ref ref;
    struct str_view view;
    bytes old;
    if (!hll_unite(c, ranks, &dense)) return;
    err found = ctx_write(c, c->argv[1], TYPE_STRING, &ref);
    if (!open_hll(c, found, &ref, &view, &old)) return;

    struct buf h = {0};
    if (found == OK)
        buf_append_bytes(&h, old);
    else
        hll_init(&h);
    bool ok = !dense || hll_make_dense(&h);
    for (u32 reg = 0; ok && reg < HLL_REGISTERS; reg++)
        if (ranks[reg]) ok = hll_raise(&h, c->ks->hll_sparse_max, reg, ranks[reg]) != HLL_CORRUPT;
    if (ok) {
        hll_drop_cache(h.p);
        hll_store(c, c->argv[1], &ref, &h, 1);
        reply_ok(c->out);
    } else {
        reply_corrupt(c);
    }
    buf_release(&h);
}
