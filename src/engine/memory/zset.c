/* Sorted sets of the memory engine.
 *
 * Small ones are one packed blob of (member, 8 bytes of score) in order; big ones
 * a table of items, for finding a member, and a tree of the same items, for the
 * order. An item is
 *
 *   f64 score · length · member
 *
 * in one allocation rounded up to 16. Scores keep their bits: -0 stays -0 until
 * a different score (0 is not) replaces it, as in Redis. */
#include "engine/memory/mem.h"

/* -- items ------------------------------------------------------------------- */

static bytes item_member(const void *item)
{
    bytes m;
    m.p = length_read((const char *)item + 8, &m.n);
    return m;
}

static double item_score(const void *item)
{
    double score;
    memcpy(&score, item, 8);
    return score;
}

static size_t mem_zset_item_need(bytes member) { return round16(8 + length_size(member.n) + member.n); }

static void *mem_zset_item_new(bytes member, double score)
{
    char *item = mem_alloc(mem_zset_item_need(member));
    memcpy(item, &score, 8);
    slice_write(item + 8, member);
    return item;
}

/* -- the struct ---------------------------------------------------------------- */

static struct mem_zset *zset_of(const struct key_ref *ref) { return entry_object(ref->entry); }

struct mem_zset *mem_zset_new(struct mem_engine *m UNUSED)
{
    struct mem_zset *z = mem_alloc(sizeof *z);
    *z = (struct mem_zset){.small = packed_new()};
    return z;
}

static struct zset_table *mem_zset_table_new(struct mem_engine *m)
{
    struct zset_table *t = mem_alloc(sizeof *t);
    table_init(&t->items, item_member, m->seed);
    ztree_init(&t->order, item_member);
    return t;
}

static void mem_zset_free_item(void *arg UNUSED, void *item) { mem_free(item); }

bool mem_zset_free_some(struct mem_zset *z, u32 units)
{
    packed_free(z->small);
    z->small = NULL;
    if (z->big) {
        if (!ztree_release_some(&z->big->order, units, NULL, NULL)) return false;
        if (!table_drain(&z->big->items, units, mem_zset_free_item, NULL)) return false;
        mem_free(z->big);
    }
    mem_free(z);
    return true;
}

u64 mem_zset_count(struct mem_zset *z)
{
    return z->small ? packed_count(z->small) / 2 : z->big->items.count;
}

static void mem_zset_add_big(struct mem_zset *z, bytes member, u64 hash, double score)
{
    void *item = mem_zset_item_new(member, score);
    table_insert(&z->big->items, hash, item);
    ztree_insert(&z->big->order, score, item);
}

struct mem_zset *mem_zset_copy(struct mem_engine *m, struct mem_zset *from)
{
    struct mem_zset *z = mem_alloc(sizeof *z);
    *z = (struct mem_zset){.small = from->small ? packed_copy(from->small) : NULL};
    if (z->small) return z;
    z->big = mem_zset_table_new(m);
    struct ztree_pos pos;
    for (bool more = ztree_at(&from->big->order, 0, &pos); more; more = ztree_next(&pos)) {
        bytes member = item_member(ztree_item(&pos));
        mem_zset_add_big(z, member, table_hash(&z->big->items, member), item_score(ztree_item(&pos)));
    }
    return z;
}

size_t mem_zset_memory(struct mem_zset *z, u32 samples)
{
    if (z->small) return sizeof *z + packed_memory(z->small);
    u64 seen = 0, sum = 0;
    struct table_iter it = {0};
    for (void *item; (samples == 0 || seen < samples) && (item = table_next(&z->big->items, &it)); seen++)
        sum += mem_zset_item_need(item_member(item));
    size_t items = seen ? (size_t)((double)sum / (double)seen * (double)z->big->items.count) : 0;
    return sizeof *z + sizeof *z->big + table_memory(&z->big->items) + ztree_memory(&z->big->order) + items;
}

const char *mem_zset_encoding(struct engine *e UNUSED, struct mem_zset *z)
{
    return z->small ? "listpack" : "skiplist";
}

/* -- the packed form -------------------------------------------------------------- */

/* The score of the member at `at`. */
static double small_score(const packed *p, u32 at)
{
    double score;
    memcpy(&score, packed_get(p, packed_next(p, at)).p, 8);
    return score;
}

static u32 next_pair(const packed *p, u32 at) { return packed_next(p, packed_next(p, at)); }

static u32 prev_pair(const packed *p, u32 at)
{
    u32 score_at = packed_prev(p, at);
    return score_at == PACKED_END ? PACKED_END : packed_prev(p, score_at);
}

static void small_insert(struct mem_zset *z, bytes member, double score)
{
    packed *p = z->small;
    u32 at = packed_first(p);
    for (; at != PACKED_END; at = next_pair(p, at)) {
        double other = small_score(p, at);
        if (other > score || (other == score && bytes_cmp(packed_get(p, at), member) > 0)) break;
    }
    p = packed_insert(p, at, member);
    z->small = packed_insert(p, at == PACKED_END ? at : packed_next(p, at), bytes_of(&score, 8));
}

static void small_put(struct mem_zset *z, u32 at, bytes member, double score)
{
    if (at != PACKED_END) {
        if (small_score(z->small, at) == score) return;
        z->small = packed_erase(z->small, at, 2);
    }
    small_insert(z, member, score);
}

static void to_big(struct mem_engine *m, struct mem_zset *z)
{
    packed *p = z->small;
    z->small = NULL;
    z->big = mem_zset_table_new(m);
    for (u32 at = packed_first(p); at != PACKED_END; at = next_pair(p, at)) {
        bytes member = packed_get(p, at);
        mem_zset_add_big(z, member, table_hash(&z->big->items, member), small_score(p, at));
    }
    packed_free(p);
}

/* -- members ------------------------------------------------------------------------ */

static void *find_big(const struct mem_zset *z, bytes member)
{
    return table_find(&z->big->items, member, table_hash(&z->big->items, member));
}

static bool mem_zset_score(struct engine *e UNUSED, struct key_ref *ref, bytes member, double *score)
{
    struct mem_zset *z = zset_of(ref);
    if (z->small) {
        u32 at = packed_find(z->small, member, 2);
        if (at == PACKED_END) return false;
        *score = small_score(z->small, at);
        return true;
    }
    void *item = find_big(z, member);
    if (item) *score = item_score(item);
    return item != NULL;
}

/* Sets the score of an item, which is out of the tree meanwhile. */
static void rescore(struct mem_zset *z, void *item, double score)
{
    double old = item_score(item);
    if (old == score) return;
    CHECK(ztree_remove(&z->big->order, old, item_member(item)));
    memcpy(item, &score, 8);
    ztree_insert(&z->big->order, score, item);
}

static bool mem_zset_put(struct engine *e, struct key_ref *ref, bytes member, double score)
{
    struct mem_zset *z = zset_of(ref);
    mem_keep(e, ref);
    if (z->small) {
        u32 at = packed_find(z->small, member, 2);
        bool fresh = at == PACKED_END;
        bool fits = (i64)mem_zset_count(z) < e->limits.zset_max_listpack_entries &&
                    (i64)member.n <= e->limits.zset_max_listpack_value &&
                    packed_bytes(z->small) + member.n < PACKED_SAFE;
        if (!fresh || fits) {
            small_put(z, at, member, score);
            return fresh;
        }
        to_big(mem_of(e), z);
    }
    u64 hash = table_hash(&z->big->items, member);
    void *item = table_find(&z->big->items, member, hash);
    if (item) rescore(z, item, score);
    else mem_zset_add_big(z, member, hash, score);
    return !item;
}

static bool mem_zset_del(struct engine *e, struct key_ref *ref, bytes member)
{
    struct mem_zset *z = zset_of(ref);
    mem_keep(e, ref);
    if (z->small) {
        u32 at = packed_find(z->small, member, 2);
        if (at == PACKED_END) return false;
        z->small = packed_erase(z->small, at, 2);
        return true;
    }
    u64 hash = table_hash(&z->big->items, member);
    void *item = table_find(&z->big->items, member, hash);
    if (!item) return false;
    CHECK(ztree_remove(&z->big->order, item_score(item), item_member(item)));
    table_remove(&z->big->items, hash, item);
    mem_free(item);
    return true;
}

static bool mem_zset_rank(struct engine *e UNUSED, struct key_ref *ref, bytes member, u64 *rank)
{
    struct mem_zset *z = zset_of(ref);
    const packed *p = z->small;
    if (p) {
        *rank = 0;
        for (u32 at = packed_first(p); at != PACKED_END; at = next_pair(p, at), ++*rank) {
            if (bytes_eq(packed_get(p, at), member)) return true;
        }
        return false;
    }
    void *item = find_big(z, member);
    if (item) *rank = ztree_rank(&z->big->order, item_score(item), member);
    return item != NULL;
}

/* -- ranges -------------------------------------------------------------------------- */

/* Whether an entry precedes a bound; `through`: or equals it. */
static bool is_before(bytes member, double score, const struct zset_seek *to, bool through)
{
    if (to->by == ZSEEK_SCORE) return score < to->score || (through && score == to->score);
    int c = bytes_cmp(member, to->lex);
    return c < 0 || (through && c == 0);
}

/* Lex bounds look at members only. Going in reverse it counts from the high end:
 * should the scores differ after all, the walk starts where Redis's would. */
static u64 small_before(struct mem_zset *z, const struct zset_seek *to, bool through, bool reverse)
{
    const packed *p = z->small;
    u64 n = reverse ? mem_zset_count(z) : 0;
    u32 at = reverse ? packed_at(p, -2) : packed_first(p);
    while (at != PACKED_END &&
           is_before(packed_get(p, at), small_score(p, at), to, through) != reverse) {
        n = reverse ? n - 1 : n + 1;
        at = reverse ? prev_pair(p, at) : next_pair(p, at);
    }
    return n;
}

static u64 big_before(struct mem_zset *z, const struct zset_seek *to, bool through)
{
    if (to->by == ZSEEK_SCORE) return ztree_rank_score(&z->big->order, to->score, through);
    struct ztree_pos pos;
    if (!ztree_at(&z->big->order, 0, &pos)) return 0;
    double score = ztree_score(&pos);
    u64 n = ztree_rank(&z->big->order, score, to->lex);
    if (through && ztree_seek(&z->big->order, score, to->lex, &pos) && ztree_score(&pos) == score &&
        bytes_eq(item_member(ztree_item(&pos)), to->lex))
        n++;
    return n;
}

/* How many entries precede a bound, including those equal to it if `through`. */
static u64 count_before(struct mem_zset *z, const struct zset_seek *to, bool through, bool reverse)
{
    u64 count = mem_zset_count(z);
    if (to->by == ZSEEK_RANK) return to->rank < count ? to->rank + through : count;
    if (to->by == ZSEEK_LEX && to->lex_inf) return to->lex_inf > 0 ? count : 0;
    return z->small ? small_before(z, to, through, reverse) : big_before(z, to, through);
}

static u64 mem_zset_before(struct engine *e UNUSED, struct key_ref *ref, const struct zset_seek *to)
{
    return count_before(zset_of(ref), to, to->exclusive, false);
}

/* The layout of an iterator's state: the next entry to return. */
struct walk {
    struct ztree_pos pos;
    u32 small_at;
    bool more;
};
_Static_assert(sizeof(struct walk) <= sizeof(((struct zset_iter *)0)->state), "iterator fits");

static void mem_zset_iter(struct engine *e, struct key_ref *ref, const struct zset_seek *from,
                          struct zset_iter *it)
{
    struct mem_zset *z = zset_of(ref);
    struct walk *w = (struct walk *)it->state;
    it->eng = e;
    it->ref = ref;
    it->reverse = from->reverse;
    *w = (struct walk){.more = false};
    u64 rank = count_before(z, from, from->exclusive != from->reverse, from->reverse);
    if (from->reverse && rank-- == 0) return;
    if (rank >= mem_zset_count(z)) return;
    if (z->small) w->small_at = packed_at(z->small, (i64)rank * 2);
    w->more = z->small || ztree_at(&z->big->order, rank, &w->pos);
}

static bool mem_zset_next(struct zset_iter *it, bytes *member, double *score)
{
    struct mem_zset *z = zset_of(it->ref);
    struct walk *w = (struct walk *)it->state;
    if (!w->more) return false;
    const packed *p = z->small;
    if (p) {
        *member = packed_get(p, w->small_at);
        *score = small_score(p, w->small_at);
        w->small_at = it->reverse ? prev_pair(p, w->small_at) : next_pair(p, w->small_at);
        w->more = w->small_at != PACKED_END;
    } else {
        *member = item_member(ztree_item(&w->pos));
        *score = ztree_score(&w->pos);
        w->more = it->reverse ? ztree_prev(&w->pos) : ztree_next(&w->pos);
    }
    return true;
}

struct erasing {
    struct mem_zset *z;
    pair_fn fn;
    void *arg;
};

static void erase_item(void *item, void *arg)
{
    struct erasing *x = arg;
    bytes member = item_member(item);
    if (x->fn) x->fn(x->arg, member, (bytes){"", 0}, item_score(item));
    table_remove(&x->z->big->items, table_hash(&x->z->big->items, member), item);
    mem_free(item);
}

static void mem_zset_erase(struct engine *e, struct key_ref *ref, u64 from, u64 count, pair_fn fn, void *arg)
{
    struct mem_zset *z = zset_of(ref);
    u64 size = mem_zset_count(z);
    if (from >= size || count == 0) return;
    mem_keep(e, ref);
    count = MIN(count, size - from);
    if (!z->small) {
        ztree_erase(&z->big->order, from, from + count - 1, erase_item, &(struct erasing){z, fn, arg});
        return;
    }
    u32 first = packed_at(z->small, (i64)from * 2), at = first;
    for (u64 i = 0; fn && i < count; i++, at = next_pair(z->small, at))
        fn(arg, packed_get(z->small, at), (bytes){"", 0}, small_score(z->small, at));
    z->small = packed_erase(z->small, first, (u32)count * 2);
}

struct zset_scan {
    pair_fn fn;
    void *arg;
    u32 seen;
};

static void mem_zset_scan_item(void *arg, void *item)
{
    struct zset_scan *s = arg;
    s->seen++;
    s->fn(s->arg, item_member(item), (bytes){"", 0}, item_score(item));
}

static u64 mem_zset_scan(struct engine *e UNUSED, struct key_ref *ref, u64 cursor, u32 count, pair_fn fn,
                         void *arg)
{
    struct mem_zset *z = zset_of(ref);
    if (z->small) {
        const packed *p = z->small;
        for (u32 at = packed_first(p); at != PACKED_END; at = next_pair(p, at))
            fn(arg, packed_get(p, at), (bytes){"", 0}, small_score(p, at));
        return 0;
    }
    struct zset_scan s = {fn, arg, 0};
    u64 steps = (u64)count * 10;
    do cursor = table_scan(&z->big->items, cursor, mem_zset_scan_item, &s);
    while (cursor && s.seen < count && --steps);
    return cursor;
}

const struct zset_ops mem_zset_ops = {
    .score = mem_zset_score,
    .put = mem_zset_put,
    .fill = mem_zset_fill,
    .del = mem_zset_del,
    .rank = mem_zset_rank,
    .before = mem_zset_before,
    .iter = mem_zset_iter,
    .next = mem_zset_next,
    .erase = mem_zset_erase,
    .scan = mem_zset_scan,
};
