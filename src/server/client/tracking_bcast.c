/* A prefix has its clients, and the keys that changed since the last tick, each once, with the client that
 * changed it, if it was only one. Invalidations are sorted, as in Redis. */
#include "server/client/tracking_bcast.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "exec/acl.h"
#include "net/net.h"

struct changed_key {
    u64 by;
    u32 n;
    char name[];
};

struct prefix {
    struct prefix_member *members;
    struct table changes;        /* struct changed_key */
    struct prefix *changed_next; /* in tracking.changed */
    bool changed;
    u32 n;
    char name[];
};

struct prefix_member {
    struct prefix *prefix;
    struct tracker *tracker;
    struct prefix_member *prev, *next; /* in the prefix's list */
};

static bytes prefix_name(const struct prefix *p) { return bytes_of(p->name, p->n); }
static bytes prefix_key(const void *item) { return prefix_name(item); }
static bytes changed_name(const struct changed_key *k) { return bytes_of(k->name, k->n); }
static bytes changed_key(const void *item) { return changed_name(item); }

void bcast_init(struct tracking *g, u64 seed) { table_init(&g->prefixes, prefix_key, seed); }

void bcast_release(struct tracking *g)
{
    table_release(&g->prefixes);
    mem_free(g->lengths);
}

/* -- prefixes ---------------------------------------------------------------------------------------- */

static void count_length(struct tracking *g, size_t n, bool more)
{
    u32 i = 0;
    while (i < g->length_count && g->lengths[i].n != n) i++;
    if (i == g->length_count) {
        g->lengths = mem_realloc(g->lengths, (i + 1) * sizeof *g->lengths);
        g->lengths[g->length_count++] = (struct prefix_length){.n = n};
    }
    g->lengths[i].prefixes += more ? 1 : -1ull;
    if (!g->lengths[i].prefixes) g->lengths[i] = g->lengths[--g->length_count];
}

static struct prefix *open_prefix(struct tracking *g, bytes name)
{
    u64 hash = table_hash(&g->prefixes, name);
    struct prefix *p = table_find(&g->prefixes, name, hash);
    if (p) return p;
    p = mem_zalloc(sizeof *p + name.n);
    p->n = (u32)name.n;
    if (name.n) memcpy(p->name, name.p, name.n);
    table_init(&p->changes, changed_key, g->prefixes.seed);
    table_insert(&g->prefixes, hash, p);
    count_length(g, name.n, true);
    return p;
}

static void free_change(void *arg UNUSED, void *item) { mem_free(item); }

static void clear_changes(struct prefix *p)
{
    while (!table_drain(&p->changes, UINT32_MAX, free_change, NULL)) {}
}

static void drop_prefix(struct tracking *g, struct prefix *p)
{
    struct prefix **at = &g->changed;
    while (p->changed && *at != p) at = &(*at)->changed_next;
    if (p->changed) *at = p->changed_next;
    clear_changes(p);
    table_release(&p->changes);
    table_remove(&g->prefixes, table_hash(&g->prefixes, prefix_name(p)), p);
    count_length(g, p->n, false);
    mem_free(p);
}

bytes tracking_prefix(const struct tracker *t, u32 i) { return prefix_name(t->prefixes[i]->prefix); }

static bool has_prefix(const struct tracker *t, const struct prefix *p)
{
    for (u32 i = 0; i < t->prefix_count; i++)
        if (t->prefixes[i]->prefix == p) return true;
    return false;
}

void tracking_add_prefix(struct tracking *g, struct tracker *t, bytes name)
{
    struct prefix *p = open_prefix(g, name);
    if (p->members && has_prefix(t, p)) return;
    struct prefix_member *m = mem_zalloc(sizeof *m);
    m->prefix = p;
    m->tracker = t;
    m->next = p->members;
    if (m->next) m->next->prev = m;
    p->members = m;
    if ((t->prefix_count & (t->prefix_count - 1)) == 0) /* the array's capacity is the next power of two */
        t->prefixes = mem_realloc(t->prefixes, MAX(t->prefix_count * 2, 1u) * sizeof(void *));
    t->prefixes[t->prefix_count++] = m;
    t->prefix_bytes += sizeof *m + name.n;
}

void bcast_leave(struct tracking *g, struct tracker *t)
{
    for (u32 i = 0; i < t->prefix_count; i++) {
        struct prefix_member *m = t->prefixes[i];
        struct prefix *p = m->prefix;
        if (m->prev) m->prev->next = m->next;
        else p->members = m->next;
        if (m->next) m->next->prev = m->prev;
        mem_free(m);
        if (!p->members) drop_prefix(g, p);
    }
    mem_free(t->prefixes);
    t->prefixes = NULL;
    t->prefix_count = 0;
    t->prefix_bytes = 0;
}

/* -- changes ----------------------------------------------------------------------------------------- */

static void note_change(struct tracking *g, struct prefix *p, bytes key, u64 by)
{
    u64 hash = table_hash(&p->changes, key);
    struct changed_key *k = table_find(&p->changes, key, hash);
    if (!k) {
        k = mem_zalloc(sizeof *k + key.n);
        k->n = (u32)key.n;
        if (key.n) memcpy(k->name, key.p, key.n);
        table_insert(&p->changes, hash, k);
    } else if (k->by != by) {
        by = 0;
    }
    k->by = by;
    if (p->changed) return;
    p->changed = true;
    p->changed_next = g->changed;
    g->changed = p;
}

void bcast_changed(struct tracking *g, bytes key, u64 by)
{
    for (u32 i = 0; i < g->length_count; i++) {
        size_t n = g->lengths[i].n;
        if (n > key.n) continue;
        bytes start = bytes_of(key.p, n);
        struct prefix *p = table_find(&g->prefixes, start, table_hash(&g->prefixes, start));
        if (p) note_change(g, p, key, by);
    }
}

/* -- sending --------------------------------------------------------------------------------- */

/* The changed keys of a prefix, sorted, for one client: … */
struct changes {
    const struct changed_key **v;
    u64 n;
    u64 but;                     /* … without those it changed itself (0: with them) … */
    const struct acl_user *user; /* … nor those its user has no permission for (NULL: with all) */
};

static int bcast_by_name(const void *a, const void *b)
{
    return bytes_cmp(changed_name(*(const struct changed_key *const *)a),
                     changed_name(*(const struct changed_key *const *)b));
}

static bool is_told(const struct changes *l, const struct changed_key *k)
{
    return (!l->but || k->by != l->but) && (!l->user || acl_knows_key(l->user, changed_name(k)));
}

static u64 count_told(const struct changes *l)
{
    u64 n = 0;
    for (u64 i = 0; i < l->n; i++) n += is_told(l, l->v[i]);
    return n;
}

static void write_changes(struct reply *out, const void *what)
{
    const struct changes *l = what;
    reply_array(out, count_told(l));
    for (u64 i = 0; i < l->n; i++)
        if (is_told(l, l->v[i])) reply_bulk(out, changed_name(l->v[i]));
}

static void tell_prefix(struct prefix *p)
{
    struct table_iter it = {0};
    struct changes l = {.v = mem_alloc(p->changes.count * sizeof *l.v)};
    const struct changed_key *k;
    while ((k = table_next(&p->changes, &it))) l.v[l.n++] = k;
    qsort(l.v, l.n, sizeof *l.v, bcast_by_name);
    for (const struct prefix_member *m = p->members; m; m = m->next) {
        const struct session *session = &m->tracker->conn->session;
        l.but = m->tracker->options & TRACK_NOLOOP ? m->tracker->id : 0;
        l.user = acl_restricts(session) ? session->user : NULL;
        if ((!l.but && !l.user) || count_told(&l)) tracking_tell(m->tracker, write_changes, &l);
    }
    mem_free(l.v);
    clear_changes(p);
    p->changed = false;
}

static int by_prefix(const void *a, const void *b)
{
    return bytes_cmp(prefix_name(*(struct prefix *const *)a), prefix_name(*(struct prefix *const *)b));
}

void bcast_tell(struct tracking *g)
{
    struct prefix **v = mem_alloc(g->prefixes.count * sizeof *v);
    u64 n = 0;
    for (struct prefix *p = g->changed; p; p = p->changed_next) v[n++] = p;
    g->changed = NULL;
    qsort(v, n, sizeof *v, by_prefix);
    for (u64 i = 0; i < n; i++) tell_prefix(v[i]);
    mem_free(v);
}
