/* A table of the keys anybody waits for, each with its line of waiters. A key leaves the table with its last
 * waiter, unless it is ready: then with its turn. */
#include "exec/waiters.h"

#include "exec/region.h"

struct waited_key {
    struct wait_place *first, *last; /* the line */
    struct waited_key *next_ready;
    bool ready;                      /* it is among the ready ones … */
    bool served;                     /* … or has its turn */
    u32 count[TYPE_STREAM + 1];      /* those in line, by what they wait for … */
    u32 even_gone;                   /* … and those whom any change concerns */
    u32 db;
    u32 name_n;
    char name[];
};

static bytes name_of(const void *item)
{
    const struct waited_key *k = item;
    return bytes_of(k->name, k->name_n);
}

void waiters_init(struct waiters *all, u64 seed) { table_init(&all->keys, name_of, seed); }
void waiters_release(struct waiters *all) { table_release(&all->keys); }

/* -- the table: the same name may be there once per database ------------------------------- */

struct key_at {
    u32 db;
    bytes name;
};

static bool is_at(void *arg, void *item)
{
    const struct key_at *at = arg;
    const struct waited_key *k = item;
    return k->db == at->db && bytes_eq(name_of(k), at->name);
}

static struct waited_key *find_key(struct waiters *all, u32 db, bytes name)
{
    struct key_at at = {db, name};
    return table_find_hash(&all->keys, table_hash(&all->keys, name), is_at, &at);
}

static struct waited_key *add_key(struct waiters *all, u32 db, bytes name)
{
    struct waited_key *k = mem_zalloc(sizeof *k + name.n);
    k->db = db;
    k->name_n = (u32)name.n;
    memcpy(k->name, name.p, name.n);
    table_insert(&all->keys, table_hash(&all->keys, name), k);
    return k;
}

static void drop_unwanted(struct waiters *all, struct waited_key *k)
{
    if (k->first || k->ready || k->served) return;
    table_remove(&all->keys, table_hash(&all->keys, name_of(k)), k);
    mem_free(k);
}

/* -- standing in line ------------------------------------------------------------------------ */

static void join(struct waiters *all, struct waiter *w, bytes name)
{
    struct waited_key *k = find_key(all, w->db, name);
    if (!k) k = add_key(all, w->db, name);
    if (k->last && k->last->who == w) return; /* named twice: it has just come */
    struct wait_place *p = &w->places[w->count++];
    *p = (struct wait_place){.who = w, .key = k, .prev = k->last};
    if (k->last) k->last->next = p;
    else k->first = p;
    k->last = p;
    k->count[w->what->type]++;
    k->even_gone += w->what->even_gone;
}

static void leave(struct waiters *all, struct wait_place *p)
{
    struct waited_key *k = p->key;
    if (p->prev) p->prev->next = p->next;
    else k->first = p->next;
    if (p->next) p->next->prev = p->prev;
    else k->last = p->prev;
    k->count[p->who->what->type]--;
    k->even_gone -= p->who->what->even_gone;
    drop_unwanted(all, k);
}

struct waiter *waiters_add(struct region *r, u32 db, struct waiting *what, void *client)
{
    struct waiters *all = &r->waiters;
    struct waiter *w = mem_alloc(sizeof *w + (size_t)what->count * sizeof *w->places);
    *w = (struct waiter){.client = client, .what = what, .db = db};
    for (int i = 0; i < what->count; i++) join(all, w, what->argv[what->first + i]);
    all->of_type[what->type]++;
    if (all->count++ == 0) region_listen(r, LISTEN_WAIT, true);
    return w;
}

void waiters_remove(struct region *r, struct waiter *w)
{
    struct waiters *all = &r->waiters;
    for (u32 i = 0; i < w->count; i++) leave(all, &w->places[i]);
    all->of_type[w->what->type]--;
    waiting_free(w->what);
    mem_free(w);
    if (--all->count == 0) region_listen(r, LISTEN_WAIT, false);
}

/* -- what happened --------------------------------------------------------------------------- */

static enum value_type type_at(struct region *r, u32 db, bytes name)
{
    struct key_ref ref;
    bool found = r->eng->ops->find(r->eng, db, name, &ref) && keyspace_visible(&r->ks, &ref);
    return found ? ref.type : TYPE_NONE;
}

/* Looked at when it changes, not when it is served: that decides the order in which keys are served. So does,
 * in Redis, that it is of no matter for which key somebody waits for such a value. */
static void consider(struct region *r, struct waited_key *k, enum value_type now)
{
    struct waiters *all = &r->waiters;
    if (k->ready || !(k->even_gone || all->of_type[now])) return;
    k->ready = true;
    k->next_ready = NULL;
    if (all->ready) all->ready_tail->next_ready = k;
    else all->ready = k;
    all->ready_tail = k;
}

void waiters_changed(struct region *r, u32 db, bytes key)
{
    struct waited_key *k = find_key(&r->waiters, db, key);
    if (k && !k->ready) consider(r, k, type_at(r, db, key));
}

void waiters_flushing(struct region *r, u32 db)
{
    struct table_iter it = {0};
    for (struct waited_key *k; (k = table_next(&r->waiters.keys, &it));)
        if (k->db == db) consider(r, k, TYPE_NONE);
}

/* Whoever waits for a key of a database waits for what now is in its place. */
void waiters_swapped(struct region *r, u32 a, u32 b)
{
    struct table_iter it = {0};
    for (struct waited_key *k; (k = table_next(&r->waiters.keys, &it));)
        if (k->db == a || k->db == b) consider(r, k, type_at(r, k->db, name_of(k)));
}

/* -- serving --------------------------------------------------------------------------------- */

static struct waited_key *next_ready(struct waiters *all)
{
    struct waited_key *k = all->ready;
    if (k && !(all->ready = k->next_ready)) all->ready_tail = NULL;
    return k;
}

/* Until nothing is left of what they wait for. Serving may make the key ready anew: then it has another
 * turn. */
static void serve_line(struct region *r, struct waited_key *k, waiter_fn serve, void *arg)
{
    enum value_type now = type_at(r, k->db, name_of(k));
    for (struct wait_place *p = k->first, *next; p && (k->count[now] || k->even_gone); p = next) {
        struct waiter *w = p->who;
        next = p->next; /* another's: each has one place in a line */
        if ((w->what->type != now && !w->what->even_gone) || !serve(arg, w, name_of(k))) continue;
        waiters_remove(r, w);
        now = type_at(r, k->db, name_of(k));
    }
}

void waiters_serve(struct region *r, waiter_fn serve, void *arg)
{
    for (struct waited_key *k; (k = next_ready(&r->waiters));) {
        k->ready = false;
        k->served = true;
        serve_line(r, k, serve, arg);
        k->served = false;
        drop_unwanted(&r->waiters, k);
    }
}
