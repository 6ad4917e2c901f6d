#include "keyspace/own_keys.h"

#include <stddef.h>

#include "keyspace/key_table.h"

#define STEP_KEYS 32

struct own_key {
    struct named_key name;
    struct heap_node due;
};

static struct own_key *own_key_of(struct heap_node *n)
{
    return (struct own_key *)(void *)((char *)n - offsetof(struct own_key, due));
}

void own_keys_init(struct own_keys *o, u64 seed)
{
    *o = (struct own_keys){0};
    key_table_init(&o->names, seed);
}

static void own_key_drop(struct own_keys *o, struct own_key *k)
{
    heap_remove(&o->due, &k->due);
    key_table_drop(&o->names, &k->name);
}

void own_keys_clear(struct own_keys *o)
{
    buf_release(&o->noted);
    while (o->due.n) own_key_drop(o, own_key_of(o->due.v[o->due.n - 1]));
}

void own_keys_release(struct own_keys *o)
{
    own_keys_clear(o);
    heap_release(&o->due);
    table_release(&o->names);
}

static void own_key_forget(struct own_keys *o, u32 db, bytes name)
{
    struct own_key *k = o->due.n ? key_table_find(&o->names, db, name) : NULL;
    if (k) own_key_drop(o, k);
}

struct note { /* in `noted`, before the key */
    u32 db, length;
    bool by_primary;
};

void own_keys_changed(struct own_keys *o, u32 db, bytes key, bool by_primary)
{
    struct note head = {db, (u32)key.n, by_primary};
    if (by_primary && !o->noted.n) {
        own_key_forget(o, db, key);
        return;
    }
    buf_append(&o->noted, &head, sizeof head);
    buf_append_bytes(&o->noted, key);
}

static void own_key_file(struct own_keys *o, u32 db, bytes name, i64 deadline_ms)
{
    struct own_key *k = key_table_find(&o->names, db, name);
    if (k) heap_remove(&o->due, &k->due);
    else k = key_table_add(&o->names, db, name, sizeof *k);
    k->due.key = deadline_ms;
    heap_add(&o->due, &k->due);
}

/* A command may report a change before it sets the deadline, so deadlines are read later, here. */
static void look_at_noted(struct own_keys *o, struct keyspace *ks)
{
    struct engine *e = ks->eng;
    for (size_t at = 0; at < o->noted.n;) {
        struct note head;
        struct key_ref ref;
        memcpy(&head, o->noted.p + at, sizeof head);
        bytes name = bytes_of(o->noted.p + at + sizeof head, head.length);
        bool timed = !head.by_primary && e->ops->find(e, head.db, name, &ref) && ref.deadline_ms;
        if (timed) own_key_file(o, head.db, name, ref.deadline_ms);
        else own_key_forget(o, head.db, name);
        at += sizeof head + name.n;
    }
    buf_release(&o->noted);
}

void own_keys_flushed(struct own_keys *o, u32 db)
{
    struct heap before = o->due;
    o->due = (struct heap){0};
    for (u32 i = 0; i < before.n; i++) {
        struct own_key *k = own_key_of(before.v[i]);
        if (k->name.db == db) key_table_drop(&o->names, &k->name);
        else heap_add(&o->due, &k->due);
    }
    heap_release(&before);
}

static u32 swapped(u32 db, u32 a, u32 b) { return db == a ? b : db == b ? a : db; }

void own_keys_swapped(struct own_keys *o, u32 a, u32 b)
{
    for (u32 i = 0; i < o->due.n; i++) {
        struct named_key *k = &own_key_of(o->due.v[i])->name;
        k->db = swapped(k->db, a, b);
    }
    struct note head;
    for (size_t at = 0; at < o->noted.n; at += sizeof head + head.length) {
        memcpy(&head, o->noted.p + at, sizeof head);
        head.db = swapped(head.db, a, b);
        memcpy(o->noted.p + at, &head, sizeof head);
    }
}

u64 own_keys_count(struct own_keys *o, struct keyspace *ks)
{
    if (o->noted.n) look_at_noted(o, ks);
    return o->due.n;
}

i64 own_keys_next_due(const struct own_keys *o)
{
    if (o->noted.n) return 0;
    return o->due.n ? heap_first(&o->due)->key : INT64_MAX;
}

bool own_keys_step(struct own_keys *o, struct keyspace *ks)
{
    struct engine *e = ks->eng;
    if (o->noted.n) look_at_noted(o, ks);
    for (u32 left = STEP_KEYS; o->due.n && !alive(heap_first(&o->due)->key, ks->now_ms); left--) {
        if (!left) return true;
        struct own_key *k = own_key_of(heap_first(&o->due));
        struct key_ref ref;
        bool found = e->ops->find(e, k->name.db, k->name.name, &ref);
        if (found && !alive(ref.deadline_ms, ks->now_ms)) keyspace_expire(ks, &ref, false);
        own_key_drop(o, k);
    }
    return false;
}
