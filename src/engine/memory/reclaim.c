/* The lazy-free queue: a dropped value of more than a few elements is queued, and
 * reclaim() frees a bounded number of elements at a time, outside the command.
 * Stale references are removed from the wheels here, too. */
#include "engine/memory/mem.h"

#define BLOB_FREE_NOW (64 * 1024)
#define LEAVES_FREE_NOW 8 /* of a stream: about a hundred entries each */
#define SWEEP_REFS 500 /* references that a call of reclaim() visits per wheel */

void mem_lazyfree_add(struct mem_engine *m, int kind, void *object)
{
    struct mem_lazyfree *g = mem_alloc(sizeof *g);
    *g = (struct mem_lazyfree){.kind = kind, .object = object};
    if (m->lazyfree_last) m->lazyfree_last->next = g;
    else m->lazyfree = g;
    m->lazyfree_last = g;
    m->lazyfree_count++;
}

void mem_rows_discard(struct mem_engine *m, struct mem_rows *r)
{
    if (omap_leaves(&r->map) > LEAVES_FREE_NOW || !mem_rows_free_some(r, LEAVES_FREE_NOW * 2))
        mem_lazyfree_add(m, LAZYFREE_ROWS, r);
}

static void discard(struct engine *e, const struct key_ref *ref, struct entry *entry)
{
    struct mem_engine *m = mem_of(e);
    void *object = entry_form(entry) == FORM_POINTER ? entry_object(entry) : NULL;
    if (UNLIKELY(entry_has_companion(entry))) mem_companion_discard(m, entry);
    if (entry_type(entry) == TYPE_HASH) mem_map_unfile(e, ref->db, entry);
    switch (object ? entry_type(entry) : TYPE_NONE) {
    case TYPE_STRING:
        if (((struct blob *)object)->cap <= BLOB_FREE_NOW) mem_free(object);
        else mem_lazyfree_add(m, LAZYFREE_BLOB, object);
        break;
    case TYPE_HASH:
    case TYPE_SET:
        if (((struct map_table *)object)->items.count > MEM_FREE_NOW ||
            !map_table_free_some(object, MEM_FREE_NOW * 2))
            mem_lazyfree_add(m, LAZYFREE_MAP, object);
        break;
    case TYPE_LIST:
        if (rope_chunks(&((struct mem_seq *)object)->rope) > MEM_FREE_NOW ||
            !mem_seq_free_some(object, MEM_FREE_NOW * 2))
            mem_lazyfree_add(m, LAZYFREE_SEQ, object);
        break;
    case TYPE_ZSET:
        if (((struct zset_table *)object)->items.count > MEM_FREE_NOW ||
            !mem_zset_free_some(object, MEM_FREE_NOW * 2))
            mem_lazyfree_add(m, LAZYFREE_ZSET, object);
        break;
    case TYPE_STREAM: mem_rows_discard(m, object); break;
    case TYPE_NONE: break;
    }
    entry_free(entry);
}

void mem_discard(struct engine *e, const struct key_ref *ref, struct entry *entry)
{
    if (UNLIKELY(mem_of(e)->snap != NULL) && mem_snap_hold(e, ref, entry)) return;
    discard(e, ref, entry);
}

/* Frees an entry of a flushed database: no index refers to it, and no snapshot
 * needs it, whatever its mark. */
static void mem_discard_flushed(void *arg, void *item)
{
    struct key_ref ref = {.db = 0};
    if (entry_type(item) == TYPE_HASH) mem_map_set_filing(item, (struct map_filing){0});
    discard(arg, &ref, item);
}

static bool mem_lazyfree_step(struct mem_engine *m, struct mem_lazyfree *g, u32 units)
{
    switch (g->kind) {
    case LAZYFREE_BLOB: mem_free(g->object); return true;
    case LAZYFREE_MAP: return map_table_free_some(g->object, units);
    case LAZYFREE_SEQ: return mem_seq_free_some(g->object, units);
    case LAZYFREE_ZSET: return mem_zset_free_some(g->object, units);
    case LAZYFREE_ROWS: return mem_rows_free_some(g->object, units);
    case LAZYFREE_KEYS: break;
    }
    struct mem_db *d = g->object;
    if (!table_drain(&d->keys, units, mem_discard_flushed, &m->base)) return false;
    if (!table_drain(&d->kept, units, mem_discard_flushed, &m->base)) return false;
    if (!wheel_release_some(&d->deadlines, units) || !wheel_release_some(&d->fields, units)) return false;
    mem_free(d);
    return true;
}

/* -- sweeping the wheels ---------------------------------------------------------- */

struct sweep {
    wheel_pos at, to;
};

static bool sweep_key(void *arg, void *item)
{
    const struct sweep *s = arg;
    if (!entry_has_deadline(item) || !wheel_keeps(entry_pos(item), s->at, s->to)) return false;
    entry_set_deadline(item, entry_deadline(item), wheel_kept(entry_pos(item), s->to));
    return true;
}

static bool sweep_hash(void *arg, void *item)
{
    const struct sweep *s = arg;
    if (entry_type(item) != TYPE_HASH) return false;
    struct map_filing f = mem_map_filing(item);
    if (!f.due_ms || !wheel_keeps(f.pos, s->at, s->to)) return false;
    f.pos = wheel_kept(f.pos, s->to);
    mem_map_set_filing(item, f);
    return true;
}

static bool keep_key(void *arg, u64 ref, wheel_pos at, wheel_pos to)
{
    struct mem_db *db = arg;
    return table_find_hash(&db->keys, ref, sweep_key, &(struct sweep){at, to}) != NULL;
}

static bool keep_hash(void *arg, u64 ref, wheel_pos at, wheel_pos to)
{
    struct mem_db *db = arg;
    return table_find_hash(&db->keys, ref, sweep_hash, &(struct sweep){at, to}) != NULL;
}

static u64 sweep_wheels(struct mem_engine *m)
{
    u64 left = 0;
    for (u32 i = 0; i < m->timed_dbs; i++) {
        struct mem_db *d = &m->dbs[i];
        if (wheel_needs_sweep(&d->deadlines)) wheel_sweep(&d->deadlines, SWEEP_REFS, keep_key, d);
        if (wheel_needs_sweep(&d->fields)) wheel_sweep(&d->fields, SWEEP_REFS, keep_hash, d);
        left += wheel_needs_sweep(&d->deadlines) + wheel_needs_sweep(&d->fields);
    }
    return left;
}

u64 mem_reclaim(struct engine *e, u32 units)
{
    struct mem_engine *m = mem_of(e);
    struct mem_lazyfree *g = m->lazyfree;
    if (g && mem_lazyfree_step(m, g, units)) {
        m->lazyfree = g->next;
        if (!m->lazyfree) m->lazyfree_last = NULL;
        mem_free(g);
        m->lazyfree_count--;
        e->reclaimed++;
    }
    u64 left = m->snap ? mem_snap_reclaim(m, units) : 0;
    return left + m->lazyfree_count + sweep_wheels(m);
}
