/* The name follows the item in the same allocation. */
#include "keyspace/key_table.h"

#include "base/alloc.h"

static bytes key_table_name_of(const void *item) { return ((const struct named_key *)item)->name; }

static bool is_it(void *arg, void *item)
{
    const struct named_key *want = arg, *k = item;
    return k->db == want->db && bytes_eq(k->name, want->name);
}

void key_table_init(struct table *t, u64 seed) { table_init(t, key_table_name_of, seed); }

void *key_table_find(const struct table *t, u32 db, bytes name)
{
    struct named_key want = {name, db};
    return table_find_hash(t, table_hash(t, name), is_it, &want);
}

void *key_table_add(struct table *t, u32 db, bytes name, size_t size)
{
    struct named_key *k = mem_zalloc(size + name.n);
    char *behind = (char *)k + size;
    if (name.n) memcpy(behind, name.p, name.n);
    *k = (struct named_key){bytes_of(behind, name.n), db};
    table_insert(t, table_hash(t, name), k);
    return k;
}

void key_table_drop(struct table *t, struct named_key *k)
{
    table_remove(t, table_hash(t, k->name), k);
    mem_free(k);
}
