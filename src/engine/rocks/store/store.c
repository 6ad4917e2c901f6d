/* Point reads and the batch.
 *
 * Rows go into one write batch, which store_write hands to RocksDB. Reads see earlier writes, never the
 * batch. Memory allocated by RocksDB is freed by rocksdb_free or the object's own destroy function: its
 * allocator may differ from ours. */
#include "engine/rocks/store/store_impl.h"

#include "base/alloc.h"
#include "base/endian.h"

#define COMPLAINTS 20 /* lines in the log between two crons */

static bool may_complain(struct store *s)
{
    return s->log && atomic_fetch_add_explicit(&s->complaints, 1, memory_order_relaxed) < COMPLAINTS;
}

void store_complain(struct store *s, const char *doing, char *err)
{
    if (may_complain(s)) log_line(s->log, LOG_WARNING, "RocksDB: %s: %s", doing, err);
    rocksdb_free(err);
}

void store_read_failed(struct store_session *s, const char *doing, char *err)
{
    *s->failed = true;
    store_complain(s->store, doing, err);
}

void store_damaged(struct store_session *s, const char *what)
{
    if (*s->failed) return; /* reported already */
    *s->failed = true;
    if (may_complain(s->store)) log_line(s->store->log, LOG_WARNING, "The database is damaged: %s", what);
}

/* -- reading ---------------------------------------------------------------------- */

static void take_value(struct store_value *out, rocksdb_pinnableslice_t *pin)
{
    out->pin = pin;
    out->b.p = rocksdb_pinnableslice_value(pin, &out->b.n);
}

bool store_get(struct store_session *s, enum family f, bytes key, struct store_value *out)
{
    char *err = NULL;
    rocksdb_pinnableslice_t *pin = rocksdb_get_pinned_cf(s->db, s->read, s->cf[f], key.p, key.n, &err);
    if (LIKELY(pin != NULL)) {
        take_value(out, pin);
        return true;
    }
    if (UNLIKELY(err != NULL)) store_read_failed(s, "can't read", err);
    *out = (struct store_value){0};
    return false;
}

u64 store_range_bytes(struct store_session *s, enum family f, bytes from, bytes to)
{
    char *err = NULL;
    uint64_t n = 0;
    rocksdb_approximate_sizes_cf(s->db, s->cf[f], 1, &from.p, &from.n, &to.p, &to.n, &n, &err);
    if (LIKELY(!err)) return n;
    store_complain(s->store, "can't tell a size", err);
    return 0;
}

void store_value_release(struct store_value *v)
{
    if (v->pin) rocksdb_pinnableslice_destroy(v->pin);
    *v = (struct store_value){0};
}

void store_multi_get(struct store_session *s, enum family f, u32 n, const bytes *keys,
                     struct store_value *out)
{
    enum { AT_ONCE = 128 }; /* RocksDB itself works in batches of 32 */
    const char *key[AT_ONCE];
    size_t key_n[AT_ONCE];
    rocksdb_pinnableslice_t *pin[AT_ONCE];
    char *err[AT_ONCE];
    for (u32 done = 0, some; done < n; done += some) {
        some = MIN(n - done, AT_ONCE);
        for (u32 i = 0; i < some; i++) {
            key[i] = keys[done + i].p;
            key_n[i] = keys[done + i].n;
        }
        rocksdb_batched_multi_get_cf(s->db, s->read, s->cf[f], some, key, key_n, pin, err, false);
        for (u32 i = 0; i < some; i++) {
            out[done + i] = (struct store_value){0};
            if (pin[i]) take_value(&out[done + i], pin[i]);
            else if (err[i]) store_read_failed(s, "can't read", err[i]);
        }
    }
}

/* -- the batch ------------------------------------------------------------------------ */

static bytes store_join(struct store_session *s, bytes a, bytes b)
{
    buf_clear(&s->joined);
    buf_append_bytes(&s->joined, a);
    buf_append_bytes(&s->joined, b);
    return buf_bytes(&s->joined);
}

static void before_put(struct store_session *s, enum family f, bytes key)
{
    if (UNLIKELY(atomic_load_explicit(&s->store->drops_pending, memory_order_relaxed)))
        store_await_drop(s->store, f, key);
    s->rows++;
    s->refilled[f] |= s->ranged[f];
}

void store_put(struct store_session *s, enum family f, bytes key, bytes value)
{
    before_put(s, f, key);
    rocksdb_writebatch_put_cf(s->batch, s->cf[f], key.p, key.n, value.p, value.n);
}

/* RocksDB joins the parts: a long value is copied once. */
void store_put_value2(struct store_session *s, enum family f, bytes key, bytes value_a, bytes value_b)
{
    const char *values[] = {value_a.p, value_b.p};
    size_t lengths[] = {value_a.n, value_b.n};
    before_put(s, f, key);
    rocksdb_writebatch_putv_cf(s->batch, s->cf[f], 1, &key.p, &key.n, 2, values, lengths);
}

void store_put2(struct store_session *s, enum family f, bytes key_a, bytes key_b, bytes value)
{
    store_put(s, f, store_join(s, key_a, key_b), value);
}

void store_delete(struct store_session *s, enum family f, bytes key)
{
    s->rows++;
    s->deletes[f]++;
    rocksdb_writebatch_delete_cf(s->batch, s->cf[f], key.p, key.n);
}

void store_delete2(struct store_session *s, enum family f, bytes key_a, bytes key_b)
{
    store_delete(s, f, store_join(s, key_a, key_b));
}

void store_delete_range(struct store_session *s, enum family f, bytes from, bytes to)
{
    enum { RANGE_WORTH = 1000 }; /* rows a range is assumed to have if store_orphaned does not say */
    s->rows++;
    s->ranged[f] = true;
    s->deletes[f] += RANGE_WORTH;
    rocksdb_writebatch_delete_range_cf(s->batch, s->cf[f], from.p, from.n, to.p, to.n);
}

bool store_batch_empty(const struct store_session *s) { return s->rows == 0; }

size_t store_batch_size(const struct store_session *s)
{
    size_t n;
    rocksdb_writebatch_data(s->batch, &n);
    return n;
}

static void clear_batch(struct store_session *s)
{
    enum { KEEP = 4 << 20 }; /* a batch keeps its memory up to this size */
    if (UNLIKELY(store_batch_size(s) > KEEP)) {
        rocksdb_writebatch_destroy(s->batch);
        s->batch = rocksdb_writebatch_create();
    } else {
        rocksdb_writebatch_clear(s->batch);
    }
    s->rows = 0;
    memset(s->deletes, 0, sizeof s->deletes);
    memset(s->ranged, 0, sizeof s->ranged);
}

void store_rest(struct store_session *s)
{
    store_drop_idle(s);
    buf_release(&s->joined);
    if (s->rows) return;
    rocksdb_writebatch_destroy(s->batch);
    s->batch = rocksdb_writebatch_create();
}

void store_discard(struct store_session *s)
{
    store_take_back(s);
    memset(s->refilled, 0, sizeof s->refilled);
    clear_batch(s);
}

/* Counts the batch's deletions as garbage until the family is swept. */
static void count_garbage(struct store_session *s)
{
    for (int f = 0; f < FAM_COUNT; f++)
        if (s->deletes[f]) store_orphaned(s->store, (enum family)f, s->deletes[f]);
}

/* Writes with RocksDB's perf counters off: counting each comparison costs a sixth of an insertion. */
static char *write_uncounted(struct store_session *s, rocksdb_writebatch_t *batch)
{
    char *err = NULL;
    rocksdb_set_perf_level(rocksdb_disable);
    rocksdb_write(s->db, s->write, batch, &err);
    rocksdb_set_perf_level(rocksdb_enable_count);
    return err;
}

/* `always`, unless the session is relaxed: the write waits for the sync. */
static void set_synced(struct store_session *s)
{
    bool syncs = !s->relaxed && store_syncs_always(s->store);
    if (LIKELY(syncs == s->syncs)) return;
    s->syncs = syncs;
    rocksdb_writeoptions_set_sync(s->write, syncs);
}

void store_relax(struct store_session *s, bool relaxed) { s->relaxed = relaxed; }

/* A batch of this many bytes, as the session's options say. */
static bool write_batch(struct store_session *s, rocksdb_writebatch_t *batch, size_t size)
{
    struct store *st = s->store;
    set_synced(s);
    char *err = write_uncounted(s, batch);
    if (UNLIKELY(err != NULL)) {
        store_write_failed(st, err);
        return false;
    }
    if (!s->syncs) atomic_store_explicit(&st->dirty, true, memory_order_release);
    store_wrote(st, size);
    store_count_written(st, size);
    return true;
}

static void before_write(struct store_session *s)
{
    store_take_back(s);
    store_drop_idle(s); /* they show the state before this write */
    if (!s->rows) return;
    for (int f = 0; f < FAM_COUNT; f++) s->refilled[f] &= s->ranged[f];
}

static void after_write(struct store_session *s, bool ok)
{
    if (ok) {
        count_garbage(s);
        s->written += store_batch_size(s);
    }
    clear_batch(s);
}

bool store_write(struct store_session *s)
{
    before_write(s);
    if (!s->rows) return true;
    bool ok = write_batch(s, s->batch, store_batch_size(s));
    after_write(s, ok);
    return ok;
}

/* A batch is a sequence number and a count of rows, which RocksDB sets and checks, and the rows. */
static rocksdb_writebatch_t *join_batches(struct store_session *const *s, u32 n)
{
    enum { COUNT_AT = 8, HEAD = 12 };
    struct buf *joined = &s[0]->joined;
    u32 rows = 0;
    buf_clear(joined);
    for (u32 i = 0; i < n; i++) {
        size_t size, from = i ? HEAD : 0;
        const char *p = rocksdb_writebatch_data(s[i]->batch, &size);
        buf_append(joined, p + from, size - from);
        rows += (u32)rocksdb_writebatch_count(s[i]->batch);
    }
    put_le32(joined->p + COUNT_AT, rows);
    return rocksdb_writebatch_create_from(joined->p, joined->n);
}

/* Joining copies the rows, which pays if they are few. */
static bool write_joined(struct store_session *const *s, u32 n)
{
    enum { JOIN_MAX = 256 << 10 };
    size_t size = 0;
    bool ok = true;
    for (u32 i = 0; i < n; i++) size += store_batch_size(s[i]);
    if (n == 1 || size > JOIN_MAX) {
        for (u32 i = 0; i < n && ok; i++) ok = write_batch(s[i], s[i]->batch, store_batch_size(s[i]));
        return ok;
    }
    rocksdb_writebatch_t *joined = join_batches(s, n);
    ok = write_batch(s[0], joined, size);
    rocksdb_writebatch_destroy(joined);
    return ok;
}

bool store_write_all(struct store_session *const *s, u32 n)
{
    struct store_session *some[STORE_TOGETHER];
    u32 some_n = 0;
    CHECK(n <= STORE_TOGETHER);
    for (u32 i = 0; i < n; i++) {
        before_write(s[i]);
        if (s[i]->rows) some[some_n++] = s[i];
    }
    bool ok = !some_n || write_joined(some, some_n);
    for (u32 i = 0; i < some_n; i++) after_write(some[i], ok);
    return ok;
}

u64 store_session_written(const struct store_session *s) { return s->written; }

void store_end_tick(struct store_session *s) { store_take_back(s); }

void store_orphaned(struct store *s, enum family f, u64 rows)
{
    atomic_fetch_add_explicit(&s->garbage[f], rows, memory_order_relaxed);
}
