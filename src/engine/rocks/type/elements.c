/* The cache of elements: a table with CLOCK eviction when its share of the budget is used up.
 *
 * Invariants: bytes is the sum of the items' sizes, and above its share by at most what was added last. No
 * collection with a version above `torn` lacks an element, besides those in `partial`. */
#include "engine/rocks/type/elements.h"

#include "base/alloc.h"
#include "ds/table.h"
#include "engine/rocks/codec.h"

#define LONGEST 1024 /* name and value together; longer elements are not cached */
#define PARTIAL 8    /* collections that are recorded singly as not whole */
#define SHARE_BUCKETS 512 /* looked at at most when it gives memory to others */
#define ITEM_COST 24 /* the table's share, and what the allocator rounds up */

struct item {
    u32 key_len, value_len, room; /* room: for key and value */
    bool used;                    /* since the hand last came by */
    char data[];                  /* key · value */
};

struct elements {
    struct table items;
    u64 bytes;
    struct cache_share share;
    u64 hand;
    u64 torn;
    u64 partial[PARTIAL]; /* versions; the oldest first */
    u32 partials;
};

static bytes key_of_item(const void *p)
{
    const struct item *i = p;
    return bytes_of(i->data, i->key_len);
}

static u64 elements_cost(const struct item *i) { return sizeof *i + i->room + ITEM_COST; }

struct elements *elements_new(struct cache_budget *of, u64 seed)
{
    struct elements *e = mem_zalloc(sizeof *e);
    table_init(&e->items, key_of_item, seed);
    cache_share_init(&e->share, of);
    e->torn = UINT64_MAX;
    return e;
}

static void elements_free_item(void *arg UNUSED, void *item) { mem_free(item); }

void elements_free(struct elements *e)
{
    if (!e) return;
    while (!table_drain(&e->items, 1u << 16, elements_free_item, NULL)) {}
    table_release(&e->items);
    cache_share_release(&e->share);
    mem_free(e);
}

void elements_begin(struct elements *e, u64 version)
{
    if (e) e->torn = version;
}

bool elements_whole(const struct elements *e, u64 version)
{
    if (!e || version <= e->torn) return false;
    for (u32 i = 0; i < e->partials; i++)
        if (e->partial[i] == version) return false;
    return true;
}

/* If too many are noted, all collections as old as the one noted first count as partial. */
void elements_leave_out(struct elements *e, u64 version)
{
    if (!elements_whole(e, version)) return;
    if (e->partials == PARTIAL) {
        e->torn = MAX(e->torn, e->partial[0]);
        memmove(e->partial, e->partial + 1, --e->partials * sizeof *e->partial);
    }
    e->partial[e->partials++] = version;
}

static void elements_lose(struct elements *e, bytes key) { e->torn = MAX(e->torn, get_u64(key.p)); }

u64 elements_memory(const struct elements *e) { return e ? e->bytes : 0; }

bool elements_find(struct elements *e, bytes key, bytes *value)
{
    if (!e) return false;
    struct item *i = table_find(&e->items, key, table_hash(&e->items, key));
    if (!i) return false;
    i->used = true;
    *value = bytes_of(i->data + i->key_len, i->value_len);
    return true;
}

static void elements_take_out(struct elements *e, struct item *i, u64 hash)
{
    e->bytes -= elements_cost(i);
    table_remove(&e->items, hash, i);
    mem_free(i);
}

struct victims {
    struct item *item[64];
    u32 n;
};

static void elements_look_at(void *arg, void *p)
{
    struct victims *v = arg;
    struct item *i = p;
    if (i->used) i->used = false;
    else if (v->n < ARRAY_LEN(v->item)) v->item[v->n++] = i;
}

/* Looks at so many buckets at most. */
static void elements_evict(struct elements *e, u64 bytes, u32 buckets)
{
    for (; e->bytes > bytes && e->items.count && buckets; buckets--) {
        struct victims v = {.n = 0};
        e->hand = table_scan(&e->items, e->hand, elements_look_at, &v);
        for (u32 i = 0; i < v.n; i++) {
            elements_lose(e, key_of_item(v.item[i]));
            elements_take_out(e, v.item[i], table_hash(&e->items, key_of_item(v.item[i])));
        }
    }
}

static void elements_make_room(struct elements *e)
{
    cache_take(&e->share, e->bytes);
    elements_evict(e, e->share.limit, UINT32_MAX);
}

void elements_share(struct elements *e, u64 uses)
{
    if (!e) return;
    u64 wanted = cache_asked(&e->share, e->bytes, uses);
    elements_evict(e, wanted, SHARE_BUCKETS);
    cache_gave(&e->share, e->bytes, wanted);
}

static void elements_add(struct elements *e, u64 hash, bytes key, bytes value)
{
    size_t room = (key.n + value.n + 15) & ~(size_t)15; /* for a value that grows a little */
    struct item *i = mem_alloc(sizeof *i + room);
    *i = (struct item){.key_len = (u32)key.n, .value_len = (u32)value.n, .room = (u32)room};
    memcpy(i->data, key.p, key.n);
    if (value.n) memcpy(i->data + key.n, value.p, value.n);
    table_insert(&e->items, hash, i);
    e->bytes += elements_cost(i);
    if (UNLIKELY(e->bytes > e->share.limit)) elements_make_room(e);
}

void elements_remember(struct elements *e, bytes key, bytes value)
{
    if (!e) return;
    u64 hash = table_hash(&e->items, key);
    struct item *i = table_find(&e->items, key, hash);
    if (i && key.n + value.n <= i->room) {
        i->value_len = (u32)value.n;
        if (value.n) memcpy(i->data + key.n, value.p, value.n);
        i->used = true;
        return;
    }
    if (i) elements_take_out(e, i, hash);
    if (key.n + value.n <= LONGEST) elements_add(e, hash, key, value);
    else elements_lose(e, key);
}

void elements_forget(struct elements *e, bytes key)
{
    if (!e) return;
    u64 hash = table_hash(&e->items, key);
    struct item *i = table_find(&e->items, key, hash);
    if (i) elements_take_out(e, i, hash);
}
