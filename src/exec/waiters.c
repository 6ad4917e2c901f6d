/* A table of the keys with waiters, each with its queue. A key leaves the table with its last waiter or, if
 * it is ready, after it was served. */
#include "exec/waiters.h"

#include "exec/region.h"
#include "keyspace/key_table.h"

struct waited_key {
    struct named_key at;
    struct wait_place *first, *last; /* the queue */
    struct waited_key *next_ready;
    bool ready;                      /* it is in the ready list … */
    bool served;                     /* … or being served */
    u32 count[TYPE_STREAM + 1];      /* waiters in the queue, by the type they wait for … */
    u32 even_gone;                   /* … and those that any change concerns */
};

void waiters_init(struct waiters *all, u64 seed) { key_table_init(&all->keys, seed); }
void waiters_release(struct waiters *all) { table_release(&all->keys); }

u32 waiters_ready(const struct waiters *all)
{
    u32 n = 0;
    for (const struct waited_key *k = all->ready; k; k = k->next_ready) n++;
    return n;
}

static void drop_unwanted(struct waiters *all, struct waited_key *k)
{
    if (!k->first && !k->ready && !k->served) key_table_drop(&all->keys, &k->at);
}

/* -- queueing -------------------------------------------------------------------------------- */

static void waiters_join(struct waiters *all, struct waiter *w, bytes name)
{
    struct waited_key *k = key_table_find(&all->keys, w->db, name);
    if (!k) k = key_table_add(&all->keys, w->db, name, sizeof *k);
    if (k->last && k->last->who == w) return; /* named twice: it was just added */
    struct wait_place *p = &w->places[w->count++];
    *p = (struct wait_place){.who = w, .key = k, .prev = k->last};
    if (k->last) k->last->next = p;
    else k->first = p;
    k->last = p;
    k->count[w->what->type]++;
    if (w->what->even_gone) all->even_gone += k->even_gone++ == 0;
}

static void leave(struct waiters *all, struct wait_place *p)
{
    struct waited_key *k = p->key;
    if (p->prev) p->prev->next = p->next;
    else k->first = p->next;
    if (p->next) p->next->prev = p->prev;
    else k->last = p->prev;
    k->count[p->who->what->type]--;
    if (p->who->what->even_gone) all->even_gone -= --k->even_gone == 0;
    drop_unwanted(all, k);
}

struct waiter *waiters_add(struct region *r, u32 db, struct waiting *what, void *client)
{
    struct waiters *all = &r->waiters;
    struct waiter *w = mem_alloc(sizeof *w + (size_t)what->count * sizeof *w->places);
    *w = (struct waiter){.region = r, .client = client, .what = what, .db = db};
    for (int i = 0; i < what->count; i++) waiters_join(all, w, what->argv[what->first + i]);
    all->of_type[what->type]++;
    if (all->count++ == 0) region_listen(r, LISTEN_WAIT, true);
    return w;
}

/* Leaves w->what to the caller. */
static void waiters_leave(struct waiter *w)
{
    struct region *r = w->region;
    struct waiters *all = &r->waiters;
    for (u32 i = 0; i < w->count; i++) leave(all, &w->places[i]);
    all->of_type[w->what->type]--;
    mem_free(w);
    if (--all->count == 0) region_listen(r, LISTEN_WAIT, false);
}

void waiters_remove(struct waiter *w)
{
    struct waiting *what = w->what;
    waiters_leave(w);
    waiting_free(what);
}

struct waiter *waiters_move(struct waiter *w, struct region *to)
{
    struct waiter *moved = waiters_add(to, w->db, w->what, w->client);
    waiters_leave(w);
    return moved;
}

/* -- changes --------------------------------------------------------------------------------- */

static enum value_type type_at(struct region *r, u32 db, bytes name)
{
    struct key_ref ref;
    bool found = r->eng->ops->find(r->eng, db, name, &ref) && keyspace_visible(&r->ks, &ref);
    return found ? ref.type : TYPE_NONE;
}

/* Checked when the key changes, not when it is served: that decides the order in which keys are served. As in
 * Redis, it does not matter for which key a waiter waits for this type. */
static void consider(struct region *r, struct waited_key *k, enum value_type now)
{
    struct waiters *all = &r->waiters;
    if (k->ready || !(k->even_gone || all->of_type[now])) return;
    k->ready = true;
    r->node->keys_ready++;
    k->next_ready = NULL;
    if (all->ready) all->ready_tail->next_ready = k;
    else all->ready = k;
    all->ready_tail = k;
}

void waiters_changed(struct region *r, u32 db, bytes key)
{
    struct waited_key *k = key_table_find(&r->waiters.keys, db, key);
    if (k && !k->ready) consider(r, k, type_at(r, db, key));
}

void waiters_flushing(struct region *r, u32 db)
{
    struct table_iter it = {0};
    for (struct waited_key *k; (k = table_next(&r->waiters.keys, &it));)
        if (k->at.db == db) consider(r, k, TYPE_NONE);
}

/* Waiters now wait for the value that was swapped in. It may be dead: it is deleted when they are served. */
void waiters_swapped(struct region *r, u32 a, u32 b)
{
    struct table_iter it = {0};
    struct key_ref ref;
    for (struct waited_key *k; (k = table_next(&r->waiters.keys, &it));) {
        if (k->at.db != a && k->at.db != b) continue;
        bool found = r->eng->ops->find(r->eng, k->at.db, k->at.name, &ref);
        consider(r, k, found ? ref.type : TYPE_NONE);
    }
}

/* -- serving --------------------------------------------------------------------------------- */

static struct waited_key *next_ready(struct waiters *all)
{
    struct waited_key *k = all->ready;
    if (k && !(all->ready = k->next_ready)) all->ready_tail = NULL;
    return k;
}

/* Like type_at, but deletes a dead key, as any command that looks it up does. */
static enum value_type type_to_serve(struct region *r, const struct waited_key *k)
{
    struct key_ref ref;
    bool found = keyspace_find(&r->ks, k->at.db, k->at.name, LOOKUP_INSPECT, &ref);
    journal_close(&r->journal, r->ks.now_ms, 0);
    return found ? ref.type : TYPE_NONE;
}

/* Serves the queue until the key has nothing left. Serving may make the key ready again: then it gets another
 * turn. */
static void serve_line(struct region *r, struct waited_key *k, waiter_fn serve, void *arg)
{
    enum value_type now = type_to_serve(r, k);
    for (struct wait_place *p = k->first, *next; p && (k->count[now] || k->even_gone); p = next) {
        struct waiter *w = p->who;
        next = p->next; /* another one's: each waiter is once in a queue */
        if ((w->what->type != now && !w->what->even_gone) || !serve(arg, w, k->at.name)) continue;
        waiters_remove(w);
        now = type_at(r, k->at.db, k->at.name);
    }
}

void waiters_serve(struct region *r, waiter_fn serve, void *arg)
{
    for (struct waited_key *k; (k = next_ready(&r->waiters));) {
        k->ready = false;
        r->node->keys_ready--;
        k->served = true;
        serve_line(r, k, serve, arg);
        k->served = false;
        drop_unwanted(&r->waiters, k);
    }
}
