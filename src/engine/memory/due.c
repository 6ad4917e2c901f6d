/* Finds due keys: takes references from the wheels and looks up their keys. */
#include "engine/memory/mem.h"

#define POSTPONE_MS 128 /* for dead fields of a huge hash that a snapshot has not saved yet */

static bool visit_is_key(void *arg, void *item)
{
    const struct wheel_visit *v = arg;
    return entry_has_deadline(item) && (v->anywhere || wheel_same(entry_pos(item), v->at));
}

static bool visit_is_hash(void *arg, void *item)
{
    const struct wheel_visit *v = arg;
    if (entry_type(item) != TYPE_HASH) return false;
    struct map_filing f = mem_map_filing(item);
    return f.due_ms && (v->anywhere || wheel_same(f.pos, v->at));
}

static void visit_key(struct engine *e, u32 db, struct wheel_visit *v, i64 until_ms, key_fn fn, void *arg)
{
    struct mem_db *d = mem_db_of(e, db);
    struct entry *entry = table_find_hash(&d->keys, v->ref, visit_is_key, v);
    if (!entry) return;
    i64 deadline_ms = entry_deadline(entry);
    if (alive(deadline_ms, until_ms)) {
        wheel_drop(&d->deadlines, entry_pos(entry), deadline_ms);
        entry_set_deadline(entry, deadline_ms, wheel_add(&d->deadlines, v->ref, deadline_ms, until_ms));
        return;
    }
    struct key_ref ref;
    mem_ref(&ref, db, v->ref, entry);
    fn(arg, &ref);
}

static void visit_hash(struct engine *e, u32 db, struct wheel_visit *v, i64 until_ms, key_fn fn, void *arg)
{
    struct entry *entry = table_find_hash(&mem_db_of(e, db)->keys, v->ref, visit_is_hash, v);
    if (!entry) return;
    struct key_ref ref;
    mem_ref(&ref, db, v->ref, entry);
    bool due = !alive(mem_map_filing(entry).due_ms, until_ms);
    mem_map_unfile(e, db, entry);
    if (!due) mem_map_file(e, &ref);
    else if (e->ops->snapshot.heavy(e, db, ref.key)) mem_map_postpone(e, &ref, until_ms + POSTPONE_MS);
    else fn(arg, &ref); /* reap() files the next deadline, drop() frees */
}

typedef void (*visit_fn)(struct engine *, u32, struct wheel_visit *, i64, key_fn, void *);

/* Takes references in small batches, so that the cache misses of their lookups overlap. */
static u32 visit_due(struct engine *e, u32 db, struct wheel *w, visit_fn visit, i64 until_ms, u32 max,
                     key_fn fn, void *arg)
{
    struct wheel_visit batch[16];
    const struct table *keys = &mem_db_of(e, db)->keys;
    u32 seen = 0;
    while (seen < max) {
        u32 n = 0;
        while (n < ARRAY_LEN(batch) && seen + n < max && wheel_take(w, until_ms, &batch[n]))
            table_prefetch_bucket(keys, batch[n++].ref);
        for (u32 i = 0; i < n; i++) table_prefetch_item(keys, batch[i].ref, ENTRY_BYTES);
        for (u32 i = 0; i < n; i++) visit(e, db, &batch[i], until_ms, fn, arg);
        seen += n;
        if (n < ARRAY_LEN(batch)) break;
    }
    return seen;
}

static u32 due_in(struct engine *e, u32 db, i64 until_ms, u32 max, key_fn fn, void *arg)
{
    struct mem_db *d = mem_db_of(e, db);
    /* Many due keys must not delay fields, so fields get a share first. */
    u32 n = visit_due(e, db, &d->fields, visit_hash, until_ms, max - max / 2, fn, arg);
    return n + visit_due(e, db, &d->deadlines, visit_key, until_ms, max - n, fn, arg);
}

/* Continues with the database where the last call stopped. */
u32 mem_due(struct engine *e, i64 until_ms, u32 max, key_fn fn, void *arg)
{
    struct mem_engine *m = mem_of(e);
    u32 seen = 0;
    for (u32 n = 0; n < m->timed_dbs; n++) {
        seen += due_in(e, m->due_db, until_ms, max - seen, fn, arg);
        if (seen >= max) break;
        m->due_db = (m->due_db + 1) % m->timed_dbs;
    }
    return seen;
}

i64 mem_next_due(struct engine *e)
{
    i64 next = INT64_MAX;
    for (u32 db = 0; db < mem_of(e)->timed_dbs; db++) {
        struct mem_db *d = mem_db_of(e, db);
        next = MIN(next, MIN(wheel_next(&d->deadlines), wheel_next(&d->fields)));
    }
    return next;
}

void mem_forecast(struct engine *e, u32 db, due_span_fn fn, void *arg)
{
    wheel_forecast(&mem_db_of(e, db)->deadlines, fn, arg);
}

/* -- one at random -------------------------------------------------------------------------- */

static bool any_deadline(void *arg UNUSED, void *item) { return entry_has_deadline(item); }

struct volatile_search {
    struct engine *e;
    u32 db;
    struct key_ref *ref;
};

static bool ref_to_volatile(void *arg, u64 hash)
{
    struct volatile_search *s = arg;
    struct entry *entry = table_find_hash(&mem_db_of(s->e, s->db)->keys, hash, any_deadline, NULL);
    if (entry) mem_ref(s->ref, s->db, hash, entry);
    return entry != NULL;
}

bool mem_random_volatile(struct engine *e, u32 db, u64 *rng, struct key_ref *ref)
{
    struct wheel *w = &mem_db_of(e, db)->deadlines;
    struct volatile_search s = {e, db, ref};
    u64 hash;
    for (int tries = 0; tries < 64 && w->live && wheel_random(w, rng, &hash); tries++) {
        if (ref_to_volatile(&s, hash)) return true; /* else a stale reference */
    }
    /* Few keys among many stale references: takes the first one found. */
    return w->live && wheel_any(w, ref_to_volatile, &s);
}
