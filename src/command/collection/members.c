/* A temporary set of borrowed names: an array, and a hash table that points into it. The array is allocated
 * once, because the table's pointers must stay valid; pages of it that are never reached cost no memory. */
#include "command/collection/members.h"

#include "base/alloc.h"
#include "base/err.h"

static bytes member_name(const void *item) { return ((const struct member *)item)->name; }

void members_init(struct members *m, u64 cap, u64 seed)
{
    *m = (struct members){.cap = cap};
    m->v = mem_alloc(MAX(cap, 1) * sizeof(*m->v));
    table_init(&m->index, member_name, seed);
}

void members_release(struct members *m)
{
    table_release(&m->index);
    mem_free(m->owned);
    mem_free(m->v);
}

static struct member *members_append(struct members *m, bytes name)
{
    CHECK(m->n < m->cap);
    struct member *e = &m->v[m->n++];
    *e = (struct member){.name = name};
    m->live++;
    return e;
}

void members_push(struct members *m, bytes name) { members_append(m, name); }

bool members_add(struct members *m, bytes name)
{
    u64 hash = table_hash(&m->index, name);
    if (table_find(&m->index, name, hash)) return false;
    table_insert(&m->index, hash, members_append(m, name));
    return true;
}

bool members_take(struct members *m, bytes name)
{
    u64 hash = table_hash(&m->index, name);
    struct member *e = table_find(&m->index, name, hash);
    if (!e) return false;
    table_remove(&m->index, hash, e);
    e->gone = true;
    m->live--;
    return true;
}

void members_own(struct members *m)
{
    size_t total = 0;
    for (u64 i = 0; i < m->n; i++) total += m->v[i].name.n;
    char *at = m->owned = mem_alloc(MAX(total, 1));
    for (u64 i = 0; i < m->n; i++) {
        bytes *name = &m->v[i].name;
        if (name->n) memcpy(at, name->p, name->n);
        name->p = at;
        at += name->n;
    }
}
