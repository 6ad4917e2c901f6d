/* A table of watched keys, each with its watches. A watch is in two lists: its key's, to find it when the key
 * changes, and its client's, to remove it. A key without watches is removed from the table.
 *
 * The deadline a key had at WATCH is enough to tell whether it has died since: setting another deadline would
 * have been a change. Likewise, if a hash has fewer live fields than at WATCH, the missing ones have died. */
#include "keyspace/watch.h"

#include "keyspace/key_table.h"

struct watched {
    struct named_key at;
    struct watches *all; /* it is in */
    struct watch *first;
    u32 count;
};

struct watch {
    struct watched *key;
    struct watcher *who;
    struct watch *prev, *next; /* in the key's list */
    struct watch *more;        /* in the client's list */
    i64 deadline_ms;           /* the key's own; 0: none */
    u64 fields;                /* live fields of a hash that has field deadlines; 0: any other key */
    bool dead;                 /* it was dead at WATCH and counts as absent */
};

void watches_init(struct watches *all, struct keyspace *ks, u64 *clients, u64 seed)
{
    *all = (struct watches){.ks = ks, .clients = clients};
    key_table_init(&all->keys, seed);
}
void watches_release(struct watches *all) { table_release(&all->keys); }

static void release_key(struct watched *key)
{
    if (--key->count == 0) key_table_drop(&key->all->keys, &key->at);
}

static void leave_key(struct watch *w)
{
    if (w->next) w->next->prev = w->prev;
    if (w->prev) w->prev->next = w->next;
    else w->key->first = w->next;
    release_key(w->key);
}

/* -- watching -------------------------------------------------------------------------------- */

static void watch_release_all(struct watcher *who)
{
    if (who->first) --*who->first->key->all->clients;
    for (struct watch *w = who->first, *more; w; w = more) {
        more = w->more;
        leave_key(w);
        mem_free(w);
    }
    who->first = NULL;
    who->count = 0;
    who->name_bytes = 0;
}

void watch_none(struct watcher *who)
{
    watch_release_all(who);
    who->dirty = false;
}

/* Searches the shorter of the two lists. */
static bool watches_already(const struct watcher *who, const struct watched *key)
{
    const struct watch *w;
    if (who->count < key->count) {
        for (w = who->first; w && w->key != key;) w = w->more;
    } else {
        for (w = key->first; w && w->who != who;) w = w->next;
    }
    return w != NULL;
}

static u64 mortal_fields(struct keyspace *ks, struct key_ref *ref)
{
    struct engine *e = ks->eng;
    bool mortal = ref->type == TYPE_HASH && e->ops->map.has_field_deadlines(e, ref);
    return mortal ? e->ops->size(e, ref) : 0;
}

void watch_key(struct watches *all, struct watcher *who, u32 db, bytes key)
{
    struct keyspace *ks = all->ks;
    struct watched *to = key_table_find(&all->keys, db, key);
    struct key_ref ref;
    if (to && watches_already(who, to)) return;
    if (!to) to = key_table_add(&all->keys, db, key, sizeof *to);
    to->all = all;
    struct watch *w = mem_alloc(sizeof *w);
    *w = (struct watch){.key = to, .who = who, .next = to->first, .more = who->first};
    if (ks->eng->ops->find(ks->eng, db, key, &ref)) {
        w->dead = !keyspace_visible(ks, &ref);
        w->deadline_ms = ref.deadline_ms;
        w->fields = mortal_fields(ks, &ref);
    }
    if (to->first) to->first->prev = w;
    to->first = who->first = w;
    to->count++;
    who->name_bytes += key.n;
    *all->clients += who->count++ == 0;
}

static bool fields_have_died(const struct watch *w)
{
    struct keyspace *ks = w->key->all->ks;
    struct key_ref ref;
    if (LIKELY(!w->fields)) return false;
    return !ks->eng->ops->find(ks->eng, w->key->at.db, w->key->at.name, &ref) ||
           mortal_fields(ks, &ref) != w->fields;
}

bool watch_broken(const struct watcher *who)
{
    if (who->dirty) return true;
    for (const struct watch *w = who->first; w; w = w->more) {
        bool died = keyspace_is_dead(w->key->all->ks, w->deadline_ms);
        if (!w->dead && (died || fields_have_died(w))) return true;
    }
    return false;
}

size_t watch_memory(const struct watcher *who)
{
    return who->count * (sizeof(struct watch) + sizeof(struct watched)) + who->name_bytes;
}

/* -- what happened --------------------------------------------------------------------------- */

enum sight { ABSENT, DEAD, ALIVE };

static enum sight watch_look_up(struct keyspace *ks, u32 db, bytes key)
{
    struct engine *e = ks->eng;
    struct key_ref ref;
    if (!e->ops->find(e, db, key, &ref)) return ABSENT;
    bool emptied = ref.type == TYPE_HASH && e->ops->size(e, &ref) == 0; /* just reaped */
    return keyspace_visible(ks, &ref) && !emptied ? ALIVE : DEAD;
}

/* If the key was absent at WATCH, a dead or missing key is no change. */
static bool content(struct watch *w, enum sight before, enum sight now)
{
    w->dead |= before == ABSENT && now == DEAD;
    return w->dead && now != ALIVE;
}

/* Marks every watcher for which this is a change as dirty and removes all its watches. The key is removed
 * with its last watch. A client has one watch per key, so the next watch in the list belongs to another
 * client and stays. */
static void reconsider(struct watched *key, enum sight before, enum sight now)
{
    if (before == ABSENT && now == ABSENT) return;
    for (struct watch *w = key->first, *next; w; w = next) {
        next = w->next;
        if (content(w, before, now)) continue;
        struct watcher *who = w->who;
        watch_release_all(who);
        who->dirty = true;
    }
}

/* Also called before a dead key is deleted: such a key is seen as DEAD. */
void watch_changed(struct watches *all, u32 db, bytes key)
{
    struct watched *to = key_table_find(&all->keys, db, key);
    bool any_dead = false;
    if (!to) return;
    for (const struct watch *w = to->first; w; w = w->next) any_dead |= w->dead;
    reconsider(to, ALIVE, any_dead ? watch_look_up(all->ks, db, key) : ALIVE);
}

/* Holds all watched keys of a database, so that they survive the loss of their last watch until
 * release_key. */
static struct watched **hold_keys(struct watches *all, u32 db, struct buf *held)
{
    struct table_iter it = {0};
    for (struct watched *key; (key = table_next(&all->keys, &it));) {
        if (key->at.db != db) continue;
        key->count++;
        buf_append(held, &key, sizeof key);
    }
    return (struct watched **)(void *)held->p;
}

void watch_flushing(struct watches *all, u32 db)
{
    struct buf held = {0};
    struct watched **keys = hold_keys(all, db, &held);
    for (size_t i = 0; i < held.n / sizeof *keys; i++) {
        reconsider(keys[i], watch_look_up(all->ks, db, keys[i]->at.name), ABSENT);
        release_key(keys[i]);
    }
    buf_release(&held);
}

void watch_distrust(struct watches *all, u32 db)
{
    struct buf held = {0};
    struct watched **keys = hold_keys(all, db, &held);
    for (size_t i = 0; i < held.n / sizeof *keys; i++) {
        reconsider(keys[i], ALIVE, ALIVE);
        release_key(keys[i]);
    }
    buf_release(&held);
}

/* The keys of this database were in the other one before. */
static void swapped_one(struct watches *all, u32 db, u32 other)
{
    struct buf held = {0};
    struct watched **keys = hold_keys(all, db, &held);
    for (size_t i = 0; i < held.n / sizeof *keys; i++) {
        bytes name = keys[i]->at.name;
        reconsider(keys[i], watch_look_up(all->ks, other, name), watch_look_up(all->ks, db, name));
        release_key(keys[i]);
    }
    buf_release(&held);
}

void watch_swapped(struct watches *all, u32 a, u32 b)
{
    swapped_one(all, a, b);
    swapped_one(all, b, a);
}
