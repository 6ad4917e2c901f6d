/* Sorted sets of the memory engine.
 *
 * Small ones are in their entry, as pairs of member and score in order (zset_small.c); big ones a table of
 * items, for finding a member, and a tree of the same items, for the order. An item is
 *
 *   f64 score · length · member
 *
 * in one allocation rounded up to 16. Scores keep their bits: -0 stays -0 until
 * a different score (0 is not) replaces it, as in Redis. */
#include "engine/fill.h"
#include "engine/memory/zset_small.h"

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

/* -- the table ----------------------------------------------------------------- */

static struct zset_table *mem_zset_table_new(struct mem_engine *m)
{
    struct zset_table *t = mem_alloc(sizeof *t);
    table_init(&t->items, item_member, m->seed);
    ztree_init(&t->order, item_member);
    return t;
}

static void mem_zset_free_item(void *arg UNUSED, void *item) { mem_free(item); }

bool mem_zset_free_some(struct zset_table *t, u32 units)
{
    if (!ztree_release_some(&t->order, units, NULL, NULL)) return false;
    if (!table_drain(&t->items, units, mem_zset_free_item, NULL)) return false;
    mem_free(t);
    return true;
}

u64 mem_zset_count(const struct entry *entry)
{
    const struct zset_table *t = mem_zset_table(entry);
    return t ? t->items.count : small_of(entry).count;
}

static void mem_zset_add(struct zset_table *t, bytes member, u64 hash, double score)
{
    void *item = mem_zset_item_new(member, score);
    table_insert(&t->items, hash, item);
    ztree_insert(&t->order, score, item);
}

struct zset_table *mem_zset_copy(struct mem_engine *m, const struct zset_table *from)
{
    struct zset_table *t = mem_zset_table_new(m);
    struct ztree_pos pos;
    for (bool more = ztree_at(&from->order, 0, &pos); more; more = ztree_next(&pos)) {
        bytes member = item_member(ztree_item(&pos));
        mem_zset_add(t, member, table_hash(&t->items, member), item_score(ztree_item(&pos)));
    }
    return t;
}

size_t mem_zset_memory(const struct zset_table *t, u32 samples)
{
    u64 seen = 0, sum = 0;
    struct table_iter it = {0};
    for (void *item; (samples == 0 || seen < samples) && (item = table_next(&t->items, &it)); seen++)
        sum += mem_zset_item_need(item_member(item));
    size_t items = seen ? (size_t)((double)sum / (double)seen * (double)t->items.count) : 0;
    return sizeof *t + table_memory(&t->items) + ztree_memory(&t->order) + items;
}

const char *mem_zset_encoding(const struct entry *entry)
{
    return entry_is_small(entry) ? "listpack" : "skiplist";
}

/* The elements move from the entry to a table. */
COLD static struct zset_table *mem_zset_to_table(struct engine *e, struct key_ref *ref)
{
    struct zset_table *t = mem_zset_table_new(mem_of(e));
    char digits[NUM_I64_LEN];
    double score;
    bytes member;
    struct small s = small_of(ref->entry);
    for (const char *at = s.p; at < small_end(&s);) {
        at = zset_small_read(e, at, digits, &member, &score);
        mem_zset_add(t, member, table_hash(&t->items, member), score);
    }
    mem_set_object(e, ref, t);
    return t;
}

/* -- members ------------------------------------------------------------------------ */

static void *find_item(const struct zset_table *t, bytes member)
{
    return table_find(&t->items, member, table_hash(&t->items, member));
}

static bool mem_zset_score(struct engine *e UNUSED, struct key_ref *ref, bytes member, double *score)
{
    const struct zset_table *t = mem_zset_table(ref->entry);
    if (!t) return zset_small_score(ref->entry, member, score);
    void *item = find_item(t, member);
    if (item) *score = item_score(item);
    return item != NULL;
}

/* Sets the score of an item, which is out of the tree meanwhile. */
static void rescore(struct zset_table *t, void *item, double score)
{
    double old = item_score(item);
    if (old == score) return;
    CHECK(ztree_remove(&t->order, old, item_member(item)));
    memcpy(item, &score, 8);
    ztree_insert(&t->order, score, item);
}

static bool mem_zset_put(struct engine *e, struct key_ref *ref, bytes member, double score)
{
    struct zset_table *t = mem_zset_table(ref->entry);
    bool added;
    mem_keep(e, ref);
    if (!t) {
        if (zset_small_put(e, ref, member, score, &added)) return added;
        t = mem_zset_to_table(e, ref);
    }
    u64 hash = table_hash(&t->items, member);
    void *item = table_find(&t->items, member, hash);
    if (item) rescore(t, item, score);
    else mem_zset_add(t, member, hash, score);
    return !item;
}

static bool mem_zset_del(struct engine *e, struct key_ref *ref, bytes member)
{
    struct zset_table *t = mem_zset_table(ref->entry);
    mem_keep(e, ref);
    if (!t) return zset_small_del(e, ref, member);
    u64 hash = table_hash(&t->items, member);
    void *item = table_find(&t->items, member, hash);
    if (!item) return false;
    CHECK(ztree_remove(&t->order, item_score(item), item_member(item)));
    table_remove(&t->items, hash, item);
    mem_free(item);
    return true;
}

static bool mem_zset_rank(struct engine *e UNUSED, struct key_ref *ref, bytes member, u64 *rank)
{
    const struct zset_table *t = mem_zset_table(ref->entry);
    if (!t) return zset_small_rank(ref->entry, member, rank);
    void *item = find_item(t, member);
    if (item) *rank = ztree_rank(&t->order, item_score(item), member);
    return item != NULL;
}

static u32 mem_zset_fill(struct engine *e, struct key_ref *ref, const bytes *members, const double *scores,
                         u32 n)
{
    mem_keep(e, ref);
    if (mem_zset_count(ref->entry) == 0 && !mem_zset_table(ref->entry)) {
        u32 filled = zset_small_fill(e, ref, members, scores, n);
        if (filled != UINT32_MAX) return filled;
    }
    u32 done = 0;
    while (done < n) {
        u32 some = MIN(n - done, MEM_FILL_TOGETHER);
        const struct zset_table *t = mem_zset_table(ref->entry);
        if (t) mem_fetch_places(&t->items, members + done, some, 1);
        u32 added = zset_fill_each(e, ref, members + done, scores + done, some);
        done += added;
        if (added < some) break;
    }
    return done;
}

/* -- ranges -------------------------------------------------------------------------- */

static u64 table_before(const struct zset_table *t, const struct zset_seek *to, bool through)
{
    if (to->by == ZSEEK_SCORE) return ztree_rank_score(&t->order, to->score, through);
    struct ztree_pos pos;
    if (!ztree_at(&t->order, 0, &pos)) return 0;
    double score = ztree_score(&pos);
    u64 n = ztree_rank(&t->order, score, to->lex);
    if (through && ztree_seek(&t->order, score, to->lex, &pos) && ztree_score(&pos) == score &&
        bytes_eq(item_member(ztree_item(&pos)), to->lex))
        n++;
    return n;
}

/* How many entries precede a bound, including those equal to it if `through`. */
static u64 count_before(const struct entry *entry, const struct zset_seek *to, bool through, bool reverse)
{
    u64 count = mem_zset_count(entry);
    if (to->by == ZSEEK_RANK) return to->rank < count ? to->rank + through : count;
    if (to->by == ZSEEK_LEX && to->lex_inf) return to->lex_inf > 0 ? count : 0;
    const struct zset_table *t = mem_zset_table(entry);
    return t ? table_before(t, to, through) : zset_small_before(entry, to, through, reverse);
}

static u64 mem_zset_before(struct engine *e UNUSED, struct key_ref *ref, const struct zset_seek *to)
{
    return count_before(ref->entry, to, to->exclusive, false);
}

/* The layout of an iterator's state: the next entry to return. */
struct walk {
    bool more;
    u32 before;           /* of a small one, in reverse: where the entry returned last is, or the end */
    const char *at, *end; /* of a small one: the next entry; in reverse `at` is the first */
    union {
        struct ztree_pos pos;
        struct compact_back back; /* in reverse */
        char digits[NUM_I64_LEN]; /* of the last member, if it.passing and not in reverse */
    };
};
_Static_assert(sizeof(struct walk) <= sizeof(((struct zset_iter *)0)->state), "iterator fits");

static void mem_zset_small_start(struct walk *w, const struct entry *entry, u64 rank, bool reverse)
{
    struct small s = small_of(entry);
    const char *at = compact_skip(s.p, true, (u32)rank + reverse);
    w->at = reverse ? s.p : at;
    w->end = small_end(&s);
    w->before = small_offset(&s, at);
    w->back.n = w->back.top = 0;
}

static void mem_zset_iter(struct engine *e, struct key_ref *ref, const struct zset_seek *from,
                          struct zset_iter *it)
{
    const struct zset_table *t = mem_zset_table(ref->entry);
    struct walk *w = (struct walk *)it->state;
    it->eng = e;
    it->ref = ref;
    it->reverse = from->reverse;
    it->passing = false;
    w->more = false;
    u64 rank = count_before(ref->entry, from, from->exclusive != from->reverse, from->reverse);
    if (from->reverse && rank-- == 0) return;
    if (rank >= mem_zset_count(ref->entry)) return;
    w->more = t ? ztree_at(&t->order, rank, &w->pos) : true;
    if (!t) mem_zset_small_start(w, ref->entry, rank, from->reverse);
}

static bool mem_zset_small_next(struct zset_iter *it, struct walk *w, bytes *member, double *score)
{
    if (it->reverse) {
        if (!compact_prev(&w->back, w->at, w->before, true, &w->before)) return w->more = false;
        zset_small_read(it->eng, w->at + w->before, NULL, member, score);
        return true;
    }
    if (w->at == w->end) return w->more = false;
    w->at = zset_small_read(it->eng, w->at, it->passing ? w->digits : NULL, member, score);
    return true;
}

static bool mem_zset_next(struct zset_iter *it, bytes *member, double *score)
{
    struct walk *w = (struct walk *)it->state;
    if (!w->more) return false;
    if (entry_is_small(it->ref->entry)) return mem_zset_small_next(it, w, member, score);
    *member = item_member(ztree_item(&w->pos));
    *score = ztree_score(&w->pos);
    w->more = it->reverse ? ztree_prev(&w->pos) : ztree_next(&w->pos);
    return true;
}

struct erasing {
    struct zset_table *t;
    pair_fn fn;
    void *arg;
};

static void erase_item(void *item, void *arg)
{
    struct erasing *x = arg;
    bytes member = item_member(item);
    if (x->fn) x->fn(x->arg, member, (bytes){"", 0}, item_score(item));
    table_remove(&x->t->items, table_hash(&x->t->items, member), item);
    mem_free(item);
}

static void mem_zset_erase(struct engine *e, struct key_ref *ref, u64 from, u64 count, pair_fn fn, void *arg)
{
    struct zset_table *t = mem_zset_table(ref->entry);
    u64 size = mem_zset_count(ref->entry);
    if (from >= size || count == 0) return;
    mem_keep(e, ref);
    count = MIN(count, size - from);
    if (t) ztree_erase(&t->order, from, from + count - 1, erase_item, &(struct erasing){t, fn, arg});
    else zset_small_erase(e, ref, (u32)from, (u32)count, fn, arg);
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

static u64 mem_zset_scan(struct engine *e, struct key_ref *ref, u64 cursor, u32 count, pair_fn fn, void *arg)
{
    const struct zset_table *t = mem_zset_table(ref->entry);
    if (!t) {
        double score;
        bytes member;
        struct small small = small_of(ref->entry);
        for (const char *at = small.p; at < small_end(&small);) {
            at = zset_small_read(e, at, NULL, &member, &score);
            fn(arg, member, (bytes){"", 0}, score);
        }
        return 0;
    }
    struct zset_scan s = {fn, arg, 0};
    u64 steps = (u64)count * 10;
    do cursor = table_scan(&t->items, cursor, mem_zset_scan_item, &s);
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
