/* The migration goes through `data` key by key: from a key's first row it seeks to where a legacy string
 * would be, and from there to the next key. A string it finds is read like any key and touched: the commit
 * writes it in the current form and deletes the old row.
 *
 * Legacy strings are counted (DBSIZE) and listed (SCAN) once they have been migrated. */
#include "engine/rocks/legacy.h"

#include "engine/rocks/recount.h"
#include "engine/rocks/state.h"

#define STATE_KEY BYTES_LIT("l")

/* -- moving ------------------------------------------------------------------------------------ */

static bool legacy_load_position(struct rk *rk)
{
    struct store_value v;
    buf_clear(&rk->legacy_position);
    bool found = store_get(rk->session, FAM_INFO, STATE_KEY, &v);
    if (found) buf_append_bytes(&rk->legacy_position, v.b);
    store_value_release(&v);
    return found;
}

bool legacy_open(struct rk *rk, struct buf *why)
{
    rk->legacy = rk->foreign;
    if (rk->foreign && rk_is_whole(rk)) {
        store_put(rk->session, FAM_INFO, STATE_KEY, (bytes){0});
        if (!recount_foreign(rk)) {
            buf_append_str(why, "the keys of the database could not be counted; see the log");
            return false;
        }
    }
    rk->legacy = legacy_load_position(rk) || rk->legacy;
    if (rk->base.failed) {
        buf_append_str(why, "the database's own state can't be read; see the log");
        return false;
    }
    return !rk->legacy || state_covers_data(rk, why);
}

/* Migrates the string of a legacy row, unless its key also exists in the current form. */
static void legacy_move(struct rk *rk, const struct codec_key *k)
{
    struct rk_db *db = rk_db_of(rk, k->index);
    if (!db || db->flushed) return;
    struct row *r = row_get(rk, db, k->key, row_hash(db, k->key));
    if (rk->base.failed || r->touched) return; /* a touched row removes the old one anyway */
    rk->legacy_moved += r->legacy;
    row_touch(rk, r);
}

bool legacy_visit(struct store_iter *it, struct buf *from, struct codec_key *k)
{
    buf_clear(from);
    buf_append_bytes(from, store_key(it));
    if (!codec_key_read(store_key(it), k)) {
        buf_append_char(from, '\0');
        return false;
    }
    from->n -= k->rest.n;
    size_t p = from->n;
    buf_append_char(from, CODEC_LEGACY);
    store_seek(it, buf_bytes(from));
    bool found = store_valid(it) && bytes_eq(store_key(it), buf_bytes(from));
    if (found) codec_key_read(store_key(it), k);
    from->n = p;
    codec_after_prefix(from);
    return found;
}

static void end_of_pass(struct rk *rk)
{
    store_delete(rk->session, FAM_INFO, STATE_KEY);
    rk->legacy_ends = true; /* if the transaction commits */
    log_line(rk->log, LOG_NOTICE, "All strings of the old form have been moved (%llu).",
             (unsigned long long)rk->legacy_moved);
}

/* No client asked for this: a failure stops the migration, not the transaction. */
void legacy_step(struct rk *rk, u32 rows)
{
    if (rk->legacy_ends || rk->legacy_stuck) return;
    struct buf *from = &rk->legacy_position;
    struct codec_key k;
    struct store_iter *it = store_iter(rk->session, FAM_DATA, (bytes){0}, (bytes){0}, STORE_ONCE);
    for (store_seek(it, buf_bytes(from)); rows > 0 && store_valid(it); rows--) {
        if (legacy_visit(it, from, &k)) legacy_move(rk, &k);
        store_seek(it, buf_bytes(from));
    }
    bool more = store_valid(it);
    store_iter_done(it);
    rk->legacy_stuck = rk->base.failed;
    rk->base.failed = false;
    if (rk->legacy_stuck)
        log_line(rk->log, LOG_WARNING, "Old strings can't be read any further: the rest stays as it is. "
                 "Run mayfly-server --check on the directory.");
    else if (more) store_put(rk->session, FAM_INFO, STATE_KEY, buf_bytes(from));
    else end_of_pass(rk);
}

/* If its position can't be read back, the migration stops until the next start. */
void legacy_abandon(struct rk *rk)
{
    if (LIKELY(!rk->legacy)) return;
    rk->legacy_ends = false;
    legacy_load_position(rk);
    rk->legacy_stuck |= rk->base.failed;
    rk->base.failed = false;
}

void legacy_info(struct rk *rk, struct buf *out)
{
    struct codec_key k;
    double done = 100;
    const char *how = !rk->legacy ? "done" : rk->legacy_stuck ? "stuck" : "running";
    if (rk->legacy) done = codec_key_read(buf_bytes(&rk->legacy_position), &k) ? k.slot / 163.84 : 0;
    buf_printf(out, "legacy_migration:%s\r\nlegacy_migration_perc:%.2f\r\nlegacy_moved:%llu\r\n",
               how, done, (unsigned long long)rk->legacy_moved);
}
