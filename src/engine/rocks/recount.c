#include "engine/rocks/recount.h"

#include "engine/rocks/state.h"

#define TOGETHER 10000 /* keys in one batch, if something is written for each */
#define PROGRESS 10000000

static void recount_key(struct rk *rk, bytes raw_key, bytes raw_value)
{
    struct codec_key k;
    if (!codec_key_read(raw_key, &k) || k.region != rk->region.prefix || k.slot >= ROCKS_SLOTS) return;
    struct rk_db *db = rk_db_of(rk, k.index);
    if (!db) return;
    struct row *r = row_new(db, k.key);
    if (row_decode(r, raw_value)) {
        bool timed = r->type == TYPE_HASH && r->field_deadlines;
        slots_count_key(rk, db, k.slot, (struct slot_counts){1, r->deadline_ms != 0, timed});
        rk->last_version = MAX(rk->last_version, r->version);
        if (r->deadline_ms && rk->old_layout) due_count_filed(rk, r);
        else if (r->deadline_ms) due_changed(rk, r, 0, r->deadline_ms);
    }
    row_free(r);
}

/* Counts up to max keys from a position, which is advanced. False: there are no more. */
static bool recount_some(struct rk *rk, struct buf *from, u64 max)
{
    struct store_iter *it = store_iter(rk->session, FAM_META, (bytes){0}, (bytes){0}, STORE_ONCE);
    for (store_seek(it, buf_bytes(from)); store_valid(it) && max > 0; store_next(it), max--)
        recount_key(rk, store_key(it), store_iter_value(it));
    bool more = store_valid(it);
    buf_clear(from);
    if (more) buf_append_bytes(from, store_key(it));
    store_iter_done(it);
    return more && !rk->base.failed;
}

static bool recount_write(struct rk *rk)
{
    bool ok = !rk->base.failed && (store_batch_empty(rk->session) || store_write(rk->session));
    due_committed(rk);
    return ok;
}

static void recount_finish(struct rk *rk)
{
    rk->slot_log.base = true;
    state_commit(rk, rk->applied_seq);
}

bool recount_foreign(struct rk *rk)
{
    struct buf from = {0};
    bool ok = true, more = true;
    log_line(rk->log, LOG_NOTICE, "Counting the keys of a database that was made elsewhere, once.");
    due_recount(rk);
    for (u64 seen = 0; ok && more; seen += TOGETHER) {
        more = recount_some(rk, &from, TOGETHER);
        due_commit(rk);
        if (!more) recount_finish(rk);
        ok = recount_write(rk);
        if (more) log_line(rk->log, LOG_NOTICE, "Counted %llu keys.", (ull)seen + TOGETHER);
    }
    if (ok) state_committed(rk, rk->applied_seq);
    state_raise_version(rk, rk->last_version);
    slots_total(rk);
    buf_release(&from);
    return ok;
}

bool recount_upgrade(struct rk *rk)
{
    struct buf from = {0};
    u64 seen = 0;
    log_line(rk->log, LOG_NOTICE, "The database has layout %d: counting its keys per slot, once.",
             STATE_LAYOUT_UNCOUNTED);
    due_recount(rk);
    while (recount_some(rk, &from, PROGRESS))
        log_line(rk->log, LOG_NOTICE, "Counted %llu keys.", (unsigned long long)(seen += PROGRESS));
    due_commit(rk);
    recount_finish(rk);
    bool ok = recount_write(rk);
    if (ok) state_committed(rk, rk->applied_seq);
    state_raise_version(rk, rk->last_version);
    slots_total(rk);
    buf_release(&from);
    return ok;
}
