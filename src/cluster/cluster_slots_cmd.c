/* CLUSTER COUNTKEYSINSLOT, GETKEYSINSLOT and SLOT-STATS: the keys of a slot, as this node has them. On the
 * leader they wait for the entry in flight, as any read. */
#include <stdlib.h>

#include "base/key_slot.h"
#include "cluster/cluster_parts.h"
#include "command/commands.h"
#include "engine/rocks/rocks.h"

static bool read_slot(struct ctx *c, bytes arg, i64 *slot)
{
    if (!ctx_int(c, arg, slot)) return false;
    return (*slot >= 0 && *slot < KEY_SLOTS) || ctx_refuse(c, "ERR Invalid or out of range slot");
}

/* The engine of the slot's region; NULL: this node has none. */
static struct engine *engine_of(struct ctx *c, u32 slot)
{
    const struct region *r = region_map_at(&ctx_node(c)->regions, slot);
    return r ? r->eng : NULL;
}

static u64 keys_in(struct ctx *c, u32 slot)
{
    struct engine *e = engine_of(c, slot);
    return e ? rocks_slot_count(e, 0, (u16)slot) : 0;
}

static void count_keys_in_slot(struct ctx *c)
{
    i64 slot;
    if (read_slot(c, c->argv[2], &slot)) reply_int(c->out, (i64)keys_in(c, (u32)slot));
}

/* -- GETKEYSINSLOT ----------------------------------------------------------------------------- */

struct slot_keys {
    struct ctx *ctx;
    struct keyspace *ks;
    u64 wanted, found;
};

static bool take_key(void *arg, struct key_ref *ref)
{
    struct slot_keys *k = arg;
    if (!keyspace_visible(k->ks, ref)) return true;
    reply_bulk(k->ctx->out, ref->key);
    return ++k->found < k->wanted;
}

static void get_keys_in_slot(struct ctx *c)
{
    i64 slot, count;
    if (!read_slot(c, c->argv[2], &slot) || !ctx_int(c, c->argv[3], &count)) return;
    if (count < 0) {
        reply_error(c->out, "ERR Invalid number of keys");
        return;
    }
    struct slot_keys k = {.ctx = c, .wanted = (u64)count};
    size_t mark = reply_mark(c->out);
    struct region *r = region_map_at(&ctx_node(c)->regions, (u32)slot);
    k.ks = r ? &r->ks : NULL;
    if (count && r) rocks_slot_keys(r->eng, 0, (u16)slot, take_key, &k);
    reply_array_at(c->out, mark, k.found);
}

/* -- SLOT-STATS -------------------------------------------------------------------------------- */

static void reply_slot_stats(struct ctx *c, u32 slot)
{
    reply_array(c->out, 2);
    reply_int(c->out, slot);
    reply_map(c->out, 1);
    reply_bulk_str(c->out, "key-count");
    reply_int(c->out, (i64)keys_in(c, slot));
}

static void slot_stats_of_range(struct ctx *c)
{
    i64 from, to;
    if (!read_slot(c, c->argv[3], &from) || !read_slot(c, c->argv[4], &to)) return;
    if (from > to) {
        reply_errorf(c->out, "ERR Start slot number %lld is greater than end slot number %lld",
                     (long long)from, (long long)to);
        return;
    }
    reply_array(c->out, (u64)(to - from + 1));
    for (i64 slot = from; slot <= to; slot++) reply_slot_stats(c, (u32)slot);
}

struct slot_rank {
    u64 keys;
    u32 slot;
};

static int by_keys(const void *a, const void *b)
{
    const struct slot_rank *x = a, *y = b;
    if (x->keys != y->keys) return x->keys < y->keys ? 1 : -1;
    return x->slot < y->slot ? -1 : 1;
}

struct slot_order {
    i64 limit;
    bool rising;
};

static bool read_order(struct ctx *c, struct slot_order *o)
{
    *o = (struct slot_order){.limit = KEY_SLOTS};
    if (!bytes_is(c->argv[3], "key-count"))
        return ctx_refuse(c, "ERR Unrecognized sort metric for ORDERBY: key-count is counted here");
    for (int i = 4; i < c->argc; i++) {
        if (bytes_is(c->argv[i], "limit") && i + 1 < c->argc) {
            if (!ctx_int_range(c, c->argv[++i], 1, KEY_SLOTS, &o->limit)) return false;
        } else if (bytes_is(c->argv[i], "asc") || bytes_is(c->argv[i], "desc")) {
            o->rising = bytes_is(c->argv[i], "asc");
        } else {
            return ctx_refuse(c, "ERR syntax error");
        }
    }
    return true;
}

static void slot_stats_in_order(struct ctx *c)
{
    struct slot_order o;
    if (!read_order(c, &o)) return;
    struct slot_rank *v = mem_alloc(KEY_SLOTS * sizeof *v);
    for (u32 i = 0; i < KEY_SLOTS; i++) v[i] = (struct slot_rank){keys_in(c, i), i};
    qsort(v, KEY_SLOTS, sizeof *v, by_keys);
    reply_array(c->out, (u64)o.limit);
    for (i64 i = 0; i < o.limit; i++) reply_slot_stats(c, v[o.rising ? KEY_SLOTS - 1 - i : i].slot);
    mem_free(v);
}

void cmd_cluster_keys(struct ctx *c)
{
    const char *name = c->cmd->name + strlen("cluster|");
    if (!c->server->cluster) reply_error(c->out, "ERR This instance has cluster support disabled");
    else if (strcmp(name, "countkeysinslot") == 0) count_keys_in_slot(c);
    else if (strcmp(name, "getkeysinslot") == 0) get_keys_in_slot(c);
    else if (bytes_is(c->argv[2], "slotsrange") && c->argc == 5) slot_stats_of_range(c);
    else if (bytes_is(c->argv[2], "orderby")) slot_stats_in_order(c);
    else reply_error(c->out, "ERR syntax error");
}
