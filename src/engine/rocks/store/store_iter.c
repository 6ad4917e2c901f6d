/* Iterators, pooled by family.
 *
 * Making a RocksDB iterator costs as much as several reads. It shows the state in which it was made, so it
 * can be used until the next write. Its read options point to the slices with its bounds, and RocksDB reads
 * them again at each seek (BlockBasedTableIterator::SeekImpl allows for changed bounds). So an idle iterator
 * serves any range of its family: new bounds are stored in those slices, and its user has to seek first. Both
 * bounds are always set, because whether there is a bound at all is fixed when the iterator is made.
 *
 * An iterator pins files and memtables: idle ones are closed at each write and each cron. Those of a view
 * live longer, since no write changes what they show; about once a second (store_session.age) they are
 * recreated at their position. */
#include "engine/rocks/store/store_impl.h"

#include "base/alloc.h"

struct store_iter {
    struct store_iter *next, **at; /* in `out` or the pool; at: the link to it, while in `out` (NULL: kept) */
    struct store_session *s;
    rocksdb_iterator_t *it;
    rocksdb_readoptions_t *options;
    struct buf lower, upper;
    struct buf place; /* scratch */
    enum family family;
    u32 age; /* of the session, when it was made */
    u8 kind; /* STORE_ONCE, STORE_NEAR */
    bool valid;
};

/* An upper bound: keys begin with u64(region ^ 2^63) or a short text, none with this many 0xff bytes. */
static const char after_all[] = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";

static void store_iter_bind(struct store_iter *it, bytes lower, bytes upper)
{
    if (!upper.n) upper = bytes_of(after_all, sizeof after_all - 1);
    buf_clear(&it->lower);
    buf_append_bytes(&it->lower, lower);
    buf_clear(&it->upper);
    buf_append_bytes(&it->upper, upper);
    rocksdb_readoptions_set_iterate_lower_bound(it->options, it->lower.n ? it->lower.p : "", it->lower.n);
    rocksdb_readoptions_set_iterate_upper_bound(it->options, it->upper.p, it->upper.n);
}

static inline u32 age_of(const struct store_session *s)
{
    return atomic_load_explicit(&s->age, memory_order_relaxed);
}

static void store_iter_create(struct store_iter *it)
{
    it->it = rocksdb_create_iterator_cf(it->s->db, it->options, it->s->cf[it->family]);
    it->age = age_of(it->s);
    it->s->iterators_made++;
}

static struct store_iter *store_iter_make(struct store_session *s, enum family f, u8 kind, bytes lower,
                                          bytes upper)
{
    struct store_iter *it = mem_zalloc(sizeof *it);
    *it = (struct store_iter){.s = s, .family = f, .kind = kind, .options = rocksdb_readoptions_create()};
    rocksdb_readoptions_set_background_purge_on_iterator_cleanup(it->options, 1);
    if (kind & STORE_ONCE || s->snapshot) rocksdb_readoptions_set_fill_cache(it->options, 0);
    if (s->snapshot) rocksdb_readoptions_set_snapshot(it->options, s->snapshot);
    if (kind & STORE_NEAR) rocksdb_readoptions_set_max_skippable_internal_keys(it->options, STORE_NEAR_SKIPS);
    store_iter_bind(it, lower, upper);
    store_iter_create(it);
    return it;
}

static void store_iter_destroy(struct store_iter *it)
{
    rocksdb_iter_destroy(it->it);
    rocksdb_readoptions_destroy(it->options);
    buf_release(&it->lower);
    buf_release(&it->upper);
    buf_release(&it->place);
    mem_free(it);
}

struct store_iter *store_iter(struct store_session *s, enum family f, bytes lower, bytes upper, u32 flags)
{
    u8 kind = flags & (STORE_ONCE | STORE_NEAR);
    struct store_iter *it = s->idle[f][kind];
    if (it) {
        s->idle[f][kind] = it->next;
        s->iterators_reused++;
        store_iter_bind(it, lower, upper);
    } else {
        it = store_iter_make(s, f, kind, lower, upper);
    }
    it->valid = false;
    it->at = NULL;
    if (flags & STORE_KEPT) return it;
    it->next = s->out;
    it->at = &s->out;
    if (it->next) it->next->at = &it->next;
    s->out = it;
    return it;
}

void store_iter_done(struct store_iter *it)
{
    struct store_iter **pool = &it->s->idle[it->family][it->kind];
    if (it->at) {
        *it->at = it->next;
        if (it->next) it->next->at = it->at;
    }
    it->next = *pool;
    *pool = it;
}

void store_take_back(struct store_session *s)
{
    while (s->out) store_iter_done(s->out);
}

void store_drop_idle(struct store_session *s)
{
    for (int f = 0; f < FAM_COUNT; f++) {
        for (int kind = 0; kind < STORE_ITER_KINDS; kind++) {
            for (struct store_iter *it; (it = s->idle[f][kind]);) {
                s->idle[f][kind] = it->next;
                store_iter_destroy(it);
            }
        }
    }
}

/* -- moving ------------------------------------------------------------------------- */

/* The next seek recreates the iterator: using it again after an error may fail an assertion of RocksDB 7.8
 * (MergingIterator, with range tombstones). */
static COLD void store_iter_fail(struct store_iter *it, char *err)
{
    it->age = age_of(it->s) - 1;
    if (it->kind & STORE_NEAR && strncmp(err, "Result incomplete", 17) == 0) { /* it gave up */
        rocksdb_free(err);
        return;
    }
    store_read_failed(it->s, "can't read on", err);
}

static inline void store_iter_moved(struct store_iter *it)
{
    it->valid = rocksdb_iter_valid(it->it);
    if (LIKELY(it->valid)) return;
    char *err = NULL; /* the end, or a failure? */
    rocksdb_iter_get_error(it->it, &err);
    if (UNLIKELY(err != NULL)) store_iter_fail(it, err);
}

static void store_iter_renew(struct store_iter *it)
{
    if (LIKELY(it->age == age_of(it->s))) return;
    rocksdb_iter_destroy(it->it);
    store_iter_create(it);
}

/* Recreates the iterator at its position. False: that row is gone (a filter has dropped it), and the iterator
 * is already at the row the next step leads to. */
static bool renew_in_place(struct store_iter *it, bool reverse)
{
    buf_clear(&it->place);
    buf_append_bytes(&it->place, store_key(it));
    store_iter_renew(it);
    if (reverse) rocksdb_iter_seek_for_prev(it->it, it->place.p, it->place.n);
    else rocksdb_iter_seek(it->it, it->place.p, it->place.n);
    store_iter_moved(it);
    return it->valid && bytes_eq(store_key(it), buf_bytes(&it->place));
}

void store_seek(struct store_iter *it, bytes key)
{
    store_iter_renew(it);
    rocksdb_iter_seek(it->it, key.p, key.n);
    store_iter_moved(it);
}

void store_seek_back(struct store_iter *it, bytes key)
{
    store_iter_renew(it);
    rocksdb_iter_seek_for_prev(it->it, key.p, key.n);
    store_iter_moved(it);
}

void store_seek_first(struct store_iter *it)
{
    store_iter_renew(it);
    rocksdb_iter_seek_to_first(it->it);
    store_iter_moved(it);
}

void store_seek_last(struct store_iter *it)
{
    store_iter_renew(it);
    rocksdb_iter_seek_to_last(it->it);
    store_iter_moved(it);
}

void store_next(struct store_iter *it)
{
    if (UNLIKELY(it->age != age_of(it->s)) && !renew_in_place(it, false)) return;
    rocksdb_iter_next(it->it);
    store_iter_moved(it);
}

void store_prev(struct store_iter *it)
{
    if (UNLIKELY(it->age != age_of(it->s)) && !renew_in_place(it, true)) return;
    rocksdb_iter_prev(it->it);
    store_iter_moved(it);
}

bool store_valid(const struct store_iter *it) { return it->valid; }

bytes store_key(const struct store_iter *it)
{
    bytes key;
    key.p = rocksdb_iter_key(it->it, &key.n);
    return key;
}

bytes store_iter_value(const struct store_iter *it)
{
    bytes value;
    value.p = rocksdb_iter_value(it->it, &value.n);
    return value;
}

/* RocksDB counts per thread. */
u64 store_tombstones_skipped(const struct store_session *s)
{
    return rocksdb_perfcontext_metric(s->perf, rocksdb_internal_delete_skipped_count) +
           rocksdb_perfcontext_metric(s->perf, rocksdb_internal_key_skipped_count);
}
