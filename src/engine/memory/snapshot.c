/* Snapshots of the memory engine: the data of one moment, handed out while it changes.
 *
 * One bit of every entry is its mark. It is saved, or no part of the snapshot, if the mark equals
 * mem_engine.mark; so begin() makes all entries unsaved at once by changing the engine's, and whatever
 * enters a table from then on (mem_insert, mem_replace) is no part of the snapshot. An unsaved entry is
 * - handed out by the walk over its table, and marked when the walk continues (until then it is `current`);
 * - or given to keep() and marked, because a primitive is about to change it (mem_keep);
 * - or, when it is dropped or overwritten as a whole (mem_discard): given to keep() if it is small; else it
 *   becomes an orphan, in no table any more, which is handed out and freed afterwards.
 * Entries that a command waits for (heavy) are handed out first.
 * The walk over a flushed database continues; it is freed when nothing in it is unsaved.
 *
 * Invariants:
 * - Without a snapshot every entry has the engine's mark.
 * - walk->left is the number of unsaved entries in each of the walk's tables (keys, and companions that
 *   stay); it never grows. So the snapshot knows at once when nothing is left, also when everything was saved
 *   before the walk came there.
 * - Unsaved entries are only in tables whose mem_db has a walk; the walk's place in the array is the number
 *   the database had at the moment, its `db` where the database is now.
 * - Reading an entry needs no table: a ref to an orphan can be read, nothing else.
 *
 * Memory: 56 bytes per database and 40 per orphan, which only big values become; nothing per key.
 *
 * A snapshot that ends early stays here until reclaim() has marked the rest, in slices.
 *
 * None begins while there are keys in staging databases, which have no walk. */
#include "engine/memory/mem.h"

/* Values up to this size are given to keep() even if they are dropped as a whole. */
#define HOLD_ELEMENTS MEM_FREE_NOW
#define HOLD_BYTES (64u << 10)
/* Changes to bigger values should wait for the walk: saving takes about a millisecond. */
#define HEAVY_ELEMENTS 4096
#define HEAVY_BYTES (1u << 20)
#define URGENT_MAX 32 /* heavy values that are handed out first */
#define SAMPLES 8 /* elements examined to estimate the size of a value */

#define BUCKETS_PER_NEXT 4  /* that next() visits before it returns without a key */
#define UNITS_PER_BUCKET 8  /* of reclaim()'s work */
#define FLUSHED_SAMPLES 64

/* The two tables of a database. */
enum part { PART_KEYS, PART_KEPT, PARTS };

/* The walk over one database of the moment. */
struct mem_walk {
    struct mem_db *db;
    u64 cursor[PARTS], left[PARTS];
    u64 held;     /* about how many bytes the flushed database has; part of engine.held */
    bool flushed; /* the snapshot owns db, and frees it at the end */
};

struct orphan {
    struct orphan *next;
    struct entry *entry;
    u64 hash, bytes; /* the latter part of engine.held */
    u32 db;          /* at the moment */
};

struct mem_snap {
    key_fn keep;
    void *arg;
    bool ended;              /* only marking is left */
    struct orphan *orphans;
    struct orphan *given;    /* handed out last, and an orphan; or NULL */
    struct entry *current;   /* handed out last, unmarked and in a table; or NULL */
    struct mem_walk *in;     /* the table's walk */
    struct {
        struct entry *entry; /* unsaved, in a table, waited for */
        struct mem_walk *in;
    } urgent[URGENT_MAX];
    u32 urgents;
    u32 at, databases;       /* the walks before `at` have nothing left */
    struct mem_walk walks[]; /* one per database */
};

static bool unsaved(const struct mem_engine *m, const struct entry *entry)
{
    return entry_mark(entry) != m->mark;
}

/* The entry was saved, or left its table: clears references to it. True: it was current. */
static bool mem_snap_forget(struct mem_snap *s, const struct entry *entry)
{
    bool was_current = s->current == entry;
    if (was_current) s->current = NULL;
    for (u32 i = 0; i < s->urgents; i++) {
        if (s->urgent[i].entry == entry) s->urgent[i--] = s->urgent[--s->urgents];
    }
    return was_current;
}

static enum part part_of(const struct entry *entry)
{
    return entry_type(entry) == TYPE_NONE ? PART_KEPT : PART_KEYS;
}

static const struct table *table_of(const struct mem_walk *w, enum part part)
{
    return part == PART_KEPT ? &w->db->kept : &w->db->keys;
}

static bool anything_left(const struct mem_walk *w) { return w->left[PART_KEYS] || w->left[PART_KEPT]; }

/* One entry less for the walk to find. */
static void strike_out(struct mem_engine *m, struct mem_walk *w, enum part part)
{
    CHECK(w->left[part] > 0);
    w->left[part]--;
    if (anything_left(w) || !w->flushed) return;
    m->base.held -= w->held;
    mem_lazyfree_add(m, LAZYFREE_KEYS, w->db);
}

static void mark_saved(struct mem_engine *m, struct mem_walk *w, struct entry *entry)
{
    entry_set_mark(entry, m->mark);
    strike_out(m, w, part_of(entry));
}

/* -- before a key changes ------------------------------------------------------------ */

/* The ref a snapshot gets: with the database as it was at the moment. */
static void ref_at_moment(const struct mem_snap *s, const struct mem_walk *w, u64 hash, struct entry *entry,
                          struct key_ref *ref)
{
    mem_ref(ref, (u32)(w - s->walks), hash, entry);
}

void mem_snap_keep(struct engine *e, const struct key_ref *ref)
{
    struct mem_engine *m = mem_of(e);
    struct mem_snap *s = m->snap;
    struct entry *entry = ref->entry;
    if (!unsaved(m, entry)) return;
    struct mem_walk *w = mem_db_of(e, ref->db)->walk;
    if (!s->ended) {
        struct key_ref at;
        ref_at_moment(s, w, ref->hash, entry, &at);
        s->keep(s->arg, &at);
    }
    mem_snap_forget(s, entry);
    mark_saved(m, w, entry);
}

static bool exceeds(struct engine *e, struct key_ref *ref, u64 elements, u64 bytes)
{
    const struct entry *entry = ref->entry;
    if (UNLIKELY(entry_has_companion(entry)) && mem_companion_memory(entry) > bytes) return true;
    if (entry_form(entry) != FORM_POINTER) return entry_size(entry) > bytes;
    if (ref->type == TYPE_STRING) return ((const struct blob *)entry_object(entry))->n > bytes;
    return e->ops->size(e, ref) > elements || e->ops->usage(e, ref, SAMPLES) > bytes;
}

static struct orphan *orphan_new(struct engine *e, struct key_ref *ref)
{
    struct orphan *o = mem_alloc(sizeof *o);
    *o = (struct orphan){
        .entry = ref->entry, .db = ref->db, .hash = ref->hash, .bytes = e->ops->usage(e, ref, SAMPLES),
    };
    e->held += o->bytes;
    return o;
}

static void orphan_free(struct engine *e, struct orphan *o)
{
    struct key_ref ref = {.db = o->db, .hash = o->hash};
    e->held -= o->bytes;
    entry_set_mark(o->entry, mem_of(e)->mark); /* otherwise mem_discard would return it here */
    mem_discard(e, &ref, o->entry);
    mem_free(o);
}

bool mem_snap_hold(struct engine *e, const struct key_ref *ref, struct entry *entry)
{
    struct mem_engine *m = mem_of(e);
    struct mem_snap *s = m->snap;
    if (!unsaved(m, entry)) return false;
    struct mem_walk *w = mem_db_of(e, ref->db)->walk;
    struct key_ref at;
    ref_at_moment(s, w, ref->hash, entry, &at);
    bool was_current = mem_snap_forget(s, entry);
    strike_out(m, w, part_of(entry));
    if (s->ended) return false;
    if (!exceeds(e, &at, HOLD_ELEMENTS, HOLD_BYTES)) {
        s->keep(s->arg, &at);
        return false;
    }
    if (at.type == TYPE_HASH) mem_map_unfile(e, ref->db, entry);
    struct orphan *o = orphan_new(e, &at);
    if (was_current) {
        s->given = o;
    } else {
        o->next = s->orphans;
        s->orphans = o;
    }
    return true;
}

/* -- whole databases ------------------------------------------------------------------- */

static u64 bytes_of_db(struct engine *e, const struct mem_db *d)
{
    struct table_iter it = {0};
    u64 seen = 0, sum = 0;
    for (struct entry *entry; seen < FLUSHED_SAMPLES && (entry = table_next(&d->keys, &it)); seen++) {
        struct key_ref ref;
        mem_ref(&ref, 0, 0, entry);
        sum += e->ops->usage(e, &ref, SAMPLES);
    }
    size_t tables = table_memory(&d->keys) + table_memory(&d->kept);
    return tables + (seen ? sum / seen * d->keys.count : 0);
}

bool mem_snap_flush(struct mem_engine *m, struct mem_db *old)
{
    struct mem_walk *w = old->walk;
    if (!w || !anything_left(w)) return false;
    if (m->snap->ended) {
        memset(w->left, 0, sizeof w->left);
        return false;
    }
    w->db = old;
    w->flushed = true;
    w->held = bytes_of_db(&m->base, old);
    m->base.held += w->held;
    return true;
}

void mem_snap_swap(struct mem_engine *m, u32 a, u32 b)
{
    if (m->dbs[a].walk) m->dbs[a].walk->db = &m->dbs[a];
    if (m->dbs[b].walk) m->dbs[b].walk->db = &m->dbs[b];
}

/* -- the walk ---------------------------------------------------------------------------- */

static bool staging_is_empty(const struct mem_engine *m)
{
    for (u32 i = m->base.databases; i < mem_all_dbs(m); i++)
        if (m->dbs[i].keys.count || m->dbs[i].kept.count) return false;
    return true;
}

static bool mem_snap_begin(struct engine *e, key_fn keep, void *arg)
{
    struct mem_engine *m = mem_of(e);
    if (m->snap || !staging_is_empty(m)) return false;
    struct mem_snap *s = mem_zalloc(sizeof *s + e->databases * sizeof s->walks[0]);
    s->keep = keep;
    s->arg = arg;
    s->databases = e->databases;
    for (u32 i = 0; i < e->databases; i++) {
        struct mem_db *d = &m->dbs[i];
        d->walk = &s->walks[i];
        s->walks[i] = (struct mem_walk){.db = d, .left = {d->keys.count, d->kept.count}};
    }
    m->snap = s;
    m->mark ^= ENTRY_MARK;
    return true;
}

/* The entry handed out last is saved by now. */
static void mem_snap_settle(struct engine *e, struct mem_snap *s)
{
    struct entry *current = s->current;
    if (current) {
        mem_snap_forget(s, current);
        mark_saved(mem_of(e), s->in, current);
    }
    if (s->given) orphan_free(e, s->given);
    s->given = NULL;
}

static struct orphan *orphan_take(struct mem_snap *s)
{
    struct orphan *o = s->orphans;
    s->orphans = o->next;
    return o;
}

static struct mem_walk *next_walk(struct mem_snap *s)
{
    while (s->at < s->databases && !anything_left(&s->walks[s->at])) s->at++;
    return s->at < s->databases ? &s->walks[s->at] : NULL;
}

struct search {
    u8 mark;
    struct entry *found;
};

static void find_unsaved(void *arg, void *item)
{
    struct search *x = arg;
    if (!x->found && entry_mark(item) != x->mark) x->found = item;
}

static void mem_snap_hand_out(struct mem_snap *s, struct mem_walk *w, struct entry *entry,
                              struct key_ref *ref)
{
    s->current = entry;
    s->in = w;
    ref_at_moment(s, w, table_hash(&w->db->keys, entry_key(entry)), entry, ref); /* both tables' hash */
}

/* Hands out an urgent entry or an orphan, before the walk's order. False: there is none. */
static bool out_of_turn(struct mem_snap *s, struct key_ref *ref)
{
    if (s->urgents) {
        s->urgents--;
        mem_snap_hand_out(s, s->urgent[s->urgents].in, s->urgent[s->urgents].entry, ref);
    } else if (s->orphans) {
        s->given = orphan_take(s);
        mem_ref(ref, s->given->db, s->given->hash, s->given->entry);
    } else {
        return false;
    }
    return true;
}

/* The cursor stays at a bucket as long as it holds an unsaved entry, so there is no state that a change of
 * the table between two calls could invalidate. */
static bool mem_snap_next(struct engine *e, struct key_ref *ref, struct engine **ref_of)
{
    struct mem_engine *m = mem_of(e);
    struct mem_snap *s = m->snap;
    mem_snap_settle(e, s);
    *ref_of = e;
    if (out_of_turn(s, ref)) return true;
    for (u32 n = 0; n < BUCKETS_PER_NEXT; n++) {
        struct mem_walk *w = next_walk(s);
        if (!w) return false;
        enum part part = w->left[PART_KEYS] ? PART_KEYS : PART_KEPT;
        struct search x = {.mark = m->mark};
        u64 cursor = table_scan(table_of(w, part), w->cursor[part], find_unsaved, &x);
        if (x.found) {
            mem_snap_hand_out(s, w, x.found, ref);
            return true;
        }
        CHECK(cursor != 0); /* nothing unsaved in the last bucket, yet left > 0 */
        w->cursor[part] = cursor;
        table_scan_ahead(table_of(w, part), cursor, ENTRY_BYTES);
    }
    *ref = (struct key_ref){0};
    return true;
}

/* -- the end ------------------------------------------------------------------------------ */

static void mem_snap_free(struct mem_engine *m)
{
    for (u32 i = 0; i < mem_all_dbs(m); i++) m->dbs[i].walk = NULL;
    mem_free(m->snap);
    m->snap = NULL;
}

static void mem_snap_end(struct engine *e)
{
    struct mem_engine *m = mem_of(e);
    struct mem_snap *s = m->snap;
    mem_snap_settle(e, s);
    s->ended = true;
    for (u32 i = 0; i < s->databases; i++) {
        struct mem_walk *w = &s->walks[i];
        if (!w->flushed || !anything_left(w)) continue;
        w->left[PART_KEYS] = 1;
        w->left[PART_KEPT] = 0;
        strike_out(m, w, PART_KEYS);
    }
    if (!s->orphans && !next_walk(s)) mem_snap_free(m);
}

struct marking {
    struct mem_engine *m;
    struct mem_walk *w;
};

static void mark_unsaved(void *arg, void *item)
{
    struct marking *x = arg;
    if (unsaved(x->m, item)) mark_saved(x->m, x->w, item);
}

u64 mem_snap_reclaim(struct mem_engine *m, u32 units)
{
    struct mem_snap *s = m->snap;
    if (!s->ended) return 0;
    for (u32 done = 0; done < units; done += UNITS_PER_BUCKET) {
        struct mem_walk *w = next_walk(s);
        if (s->orphans) {
            orphan_free(&m->base, orphan_take(s));
        } else if (w) {
            enum part part = w->left[PART_KEYS] ? PART_KEYS : PART_KEPT;
            const struct table *t = table_of(w, part);
            w->cursor[part] = table_scan(t, w->cursor[part], mark_unsaved, &(struct marking){m, w});
            CHECK(w->cursor[part] != 0 || w->left[part] == 0);
            table_scan_ahead(t, w->cursor[part], 1);
        } else {
            mem_snap_free(m);
            return 0;
        }
    }
    return 1;
}

void mem_snap_close(struct engine *e)
{
    struct mem_snap *s = mem_of(e)->snap;
    if (s && !s->ended) mem_snap_end(e);
}

static void make_urgent(struct mem_snap *s, struct mem_walk *w, struct entry *entry)
{
    if (s->urgents == URGENT_MAX) return;
    for (u32 i = 0; i < s->urgents; i++)
        if (s->urgent[i].entry == entry) return;
    s->urgent[s->urgents].entry = entry;
    s->urgent[s->urgents++].in = w;
}

static bool mem_snap_heavy(struct engine *e, u32 db, bytes key)
{
    struct mem_engine *m = mem_of(e);
    struct key_ref ref;
    if (!m->snap || m->snap->ended || !e->ops->find(e, db, key, &ref)) return false;
    if (!unsaved(m, ref.entry) || !exceeds(e, &ref, HEAVY_ELEMENTS, HEAVY_BYTES)) return false;
    make_urgent(m->snap, mem_db_of(e, db)->walk, ref.entry);
    return true;
}

const struct snapshot_ops mem_snapshot_ops = {
    .begin = mem_snap_begin,
    .next = mem_snap_next,
    .end = mem_snap_end,
    .heavy = mem_snap_heavy,
};
