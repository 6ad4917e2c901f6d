#include "site/walk.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "site/sync.h"

#define WALK_CHUNK 32 /* names at a time */
#define CHANGED_MAX ((size_t)UINT32_MAX - 1)

void site_walk_begin(struct site_walk *w, struct site *s)
{
    *w = (struct site_walk){.s = s, .next = s->walks};
    s->walks = w;
    site_names_begin(&w->names, s);
}

void site_walk_end(struct site_walk *w)
{
    struct site_walk **at = &w->s->walks;
    while (*at && *at != w) at = &(*at)->next;
    if (*at) *at = w->next;
    site_names_release(&w->names);
    buf_release(&w->ahead);
    buf_release(&w->changed);
    buf_release(&w->dump);
    site_key_release(&w->key);
    site_cell_release(&w->cell);
    mem_free(w->table);
    w->table = NULL;
}

static void walk_lose(struct site_walk *w)
{
    w->lost = true;
    buf_release(&w->ahead);
    buf_release(&w->changed);
    mem_free(w->table);
    w->table = NULL;
    w->n = w->room = 0;
}

/* -- names of keys that have changed ------------------------------------------------------------------- */

static bool walk_is_at(const struct site_walk *w, u32 at, u32 db, bytes name)
{
    struct site_reader r = site_reader_of(bytes_of(w->changed.p + at, w->changed.n - at));
    return site_get_varint(&r) == db && bytes_eq(site_get_bytes(&r), name);
}

/* Where the name is, or where it belongs. */
static u32 *walk_slot(const struct site_walk *w, u32 db, bytes name)
{
    u32 i = (u32)hash_bytes(name, db) & (w->room - 1);
    while (w->table[i] && !walk_is_at(w, w->table[i] - 1, db, name)) i = (i + 1) & (w->room - 1);
    return &w->table[i];
}

static bool walk_has(const struct site_walk *w, u32 db, bytes name)
{
    return w->n && *walk_slot(w, db, name);
}

static void walk_grow(struct site_walk *w)
{
    u32 room = w->room ? w->room * 2 : 64;
    mem_free(w->table);
    w->table = mem_zalloc(room * sizeof *w->table);
    w->room = room;
    for (struct site_reader r = site_reader_of(buf_bytes(&w->changed)); site_left(&r);) {
        u32 at = (u32)(r.p - w->changed.p), db = (u32)site_get_varint(&r);
        *walk_slot(w, db, site_get_bytes(&r)) = at + 1;
    }
}

static void walk_add(struct site_walk *w, u32 db, bytes name)
{
    if (w->n >= w->room / 2) walk_grow(w);
    *walk_slot(w, db, name) = (u32)w->changed.n + 1;
    site_put_varint(&w->changed, db);
    site_put_bytes(&w->changed, name);
    w->n++;
}

static void walk_key_changes(struct site_walk *w, u32 db, bytes name)
{
    if (w->lost || walk_has(w, db, name)) return;
    buf_clear(&w->dump);
    site_dump_key(w->s, &w->key, &w->cell, db, name, &w->dump);
    walk_add(w, db, name);
    if (w->dump.n) {
        site_put_varint(&w->ahead, db);
        site_put_bytes(&w->ahead, name);
        site_put_bytes(&w->ahead, buf_bytes(&w->dump));
    }
    if (w->ahead.n > SITE_WALK_AHEAD_MAX || w->changed.n > CHANGED_MAX) walk_lose(w);
}

void site_walk_changes(struct site_walk *first, u32 db, bytes name)
{
    for (struct site_walk *w = first; w; w = w->next) walk_key_changes(w, db, name);
}

/* -- names --------------------------------------------------------------------------------------------- */

void site_names_begin(struct site_names *it, const struct site *s)
{
    *it = (struct site_names){0};
    buf_append_bytes(&it->recent, buf_bytes(&s->recent));
}

/* The next of the keys that have changed since the transaction began. */
static bool walk_recent(struct site_names *it, u32 *db, bytes *name)
{
    struct site_reader r = site_reader_of(
        bytes_of(it->recent.p + it->recent_taken, it->recent.n - it->recent_taken));
    if (!site_left(&r)) return false;
    *db = (u32)site_get_varint(&r);
    *name = site_get_bytes(&r);
    it->recent_taken = (size_t)(r.p - it->recent.p);
    return true;
}

static void walk_note_name(void *arg, struct key_ref *ref) { site_put_bytes(arg, ref->key); }

/* Finds some. False: there are no more. */
static bool walk_find(struct site_names *it, struct site *s)
{
    const struct engine_ops *ops = s->e->ops;
    buf_clear(&it->found);
    it->taken = 0;
    while (!it->found.n && it->db < s->databases) {
        bool more;
        it->of = it->db;
        if (it->scans)
            more = (it->cursor = ops->scan(s->e, it->db, it->cursor, WALK_CHUNK, walk_note_name, &it->found));
        else
            more = ops->companion.each_kept(s->e, it->db, &it->place, WALK_CHUNK, walk_note_name, &it->found);
        if (more) continue;
        it->db += it->scans;
        it->scans = !it->scans;
        it->cursor = 0;
        buf_clear(&it->place);
    }
    return it->found.n > 0;
}

bool site_names_next(struct site_names *it, struct site *s, u32 *db, bytes *name)
{
    if (walk_recent(it, db, name)) return true;
    if (it->taken == it->found.n && !walk_find(it, s)) return false;
    struct site_reader r = site_reader_of(bytes_of(it->found.p + it->taken, it->found.n - it->taken));
    *name = site_get_bytes(&r);
    *db = it->of;
    it->taken = (size_t)(r.p - it->found.p);
    return true;
}

void site_names_release(struct site_names *it)
{
    buf_release(&it->recent);
    buf_release(&it->place);
    buf_release(&it->found);
    *it = (struct site_names){0};
}

/* -- handing out --------------------------------------------------------------------------------------- */

static size_t walk_ahead(struct site_walk *w, site_dump_fn fn, void *arg)
{
    size_t n = w->ahead.n;
    for (struct site_reader r = site_reader_of(buf_bytes(&w->ahead)); site_left(&r);) {
        u32 db = (u32)site_get_varint(&r);
        bytes name = site_get_bytes(&r);
        fn(arg, db, name, site_get_bytes(&r));
    }
    buf_release(&w->ahead);
    return n;
}

bool site_walk_some(struct site_walk *w, size_t bytes_max, site_dump_fn fn, void *arg)
{
    size_t out = w->lost ? 0 : walk_ahead(w, fn, arg);
    bytes name;
    u32 db;
    while (!w->lost && out < bytes_max) {
        if (!site_names_next(&w->names, w->s, &db, &name)) return false;
        if (walk_has(w, db, name)) continue;
        buf_clear(&w->dump);
        site_dump_key(w->s, &w->key, &w->cell, db, name, &w->dump);
        if (!w->dump.n) continue;
        fn(arg, db, name, buf_bytes(&w->dump));
        out += w->dump.n + name.n;
    }
    return !w->lost;
}
