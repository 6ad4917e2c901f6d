/* Writing a stream, one node or a few pending entries at a time. Redis's nodes are written as they are, but
 * without deleted entries. */
#include "rdb/rdb_stream.h"

#include <endian.h>

#include "base/alloc.h"
#include "ds/rdb_blob.h"

#define STEP_COST 32 /* charged to the budget besides bytes */

struct rdb_stream_save *rdb_stream_save_begin(struct rdb_out *out, struct engine *eng, struct key_ref *ref,
                                              i64 *budget)
{
    struct rdb_stream_save *w = mem_zalloc(sizeof *w);
    w->out = out;
    w->budget = budget;
    xstream_open(&w->s, eng, ref);
    return w;
}

void rdb_stream_save_release(struct rdb_stream_save *w)
{
    if (!w) return;
    xname_walk_end(&w->groups);
    xname_walk_end(&w->consumers);
    buf_release(&w->pack);
    mem_free(w);
}

static void stream_spend(struct rdb_stream_save *w, size_t n) { *w->budget -= (i64)n + STEP_COST; }

static void stream_save_put_id(struct rdb_out *out, struct stream_id id)
{
    rdb_put_len(out, id.ms);
    rdb_put_len(out, id.seq);
}

static void put_raw_id(struct rdb_out *out, struct stream_id id)
{
    char raw[STREAM_ID_RAW];
    stream_id_pack(raw, id);
    rdb_put_raw(out, bytes_of(raw, sizeof raw));
}

/* -- nodes ------------------------------------------------------------------------------------- */

/* The next node that has entries. 1: found; 0: no more; -1: no budget. */
static int next_node(struct rdb_stream_save *w, struct xnode *n)
{
    if (!w->walking) xnode_walk(&w->nodes, &w->s);
    w->walking = true;
    while (*w->budget > 0) {
        if (!xnode_next(&w->nodes, n)) return 0;
        stream_spend(w, 0);
        if (n->live) return 1;
    }
    return -1;
}

static bool stream_save_survey(struct rdb_stream_save *w)
{
    struct xnode n;
    int got;
    while ((got = next_node(w, &n)) > 0) w->count++;
    if (got < 0) return false;
    rdb_put_len(w->out, w->count);
    w->count = 0;
    return true;
}

static u64 pack_int(struct buf *pack, i64 v)
{
    char digits[NUM_I64_LEN];
    rdb_pack_add(pack, bytes_of(digits, num_print_i64(digits, v)));
    return 1;
}

/* The master entry of a node: counts and the first entry's field names. Returns its number of elements. */
static u64 pack_master(struct buf *pack, const struct xnode *n, bytes names)
{
    struct xentry e;
    u64 elements = pack_int(pack, n->live) + pack_int(pack, 0);
    xentry_open_names(&e, names);
    elements += pack_int(pack, (i64)e.count);
    for (u64 i = 0; i < e.count; i++) rdb_pack_add(pack, xentry_name(&e));
    return elements + e.count + pack_int(pack, 0);
}

static u64 pack_entry(struct buf *pack, const struct xnode *n, struct stream_id id, bytes packed, bytes names)
{
    bool same = bytes_eq(xentry_names(packed), names);
    struct xentry e;
    bytes name, value;
    u64 elements = pack_int(pack, same ? RDB_ENTRY_SAME : 0);
    xentry_open(&e, packed);
    elements += pack_int(pack, (i64)(id.ms - n->id.ms)) + pack_int(pack, (i64)(id.seq - n->id.seq));
    if (!same) elements += pack_int(pack, (i64)e.count);
    while (xentry_next(&e, &name, &value)) {
        if (!same) rdb_pack_add(pack, name);
        rdb_pack_add(pack, value);
        elements += same ? 1 : 2;
    }
    return elements + pack_int(pack, (i64)elements);
}

static void write_node(struct rdb_stream_save *w, const struct xnode *n)
{
    char raw[STREAM_ID_RAW];
    struct buf names = {0};
    struct xwalk entries;
    struct stream_id id;
    bytes packed;
    u64 elements = 0, live = 0;
    rdb_pack_begin(&w->pack);
    xstream_walk(&entries, &w->s, n->id, n->last, false);
    for (; xwalk_next(&entries, &id, &packed); live++) {
        if (live == 0) {
            buf_append_bytes(&names, xentry_names(packed));
            elements += pack_master(&w->pack, n, buf_bytes(&names));
        }
        elements += pack_entry(&w->pack, n, id, packed, buf_bytes(&names));
    }
    rdb_pack_end(&w->pack, elements);
    if (live != n->live) w->out->failed = true; /* the node was not what its header said */
    stream_id_pack(raw, n->id);
    rdb_put_string(w->out, bytes_of(raw, sizeof raw));
    rdb_put_string(w->out, buf_bytes(&w->pack));
    w->count += live;
    stream_spend(w, w->pack.n);
    buf_release(&names);
}

static bool write_nodes(struct rdb_stream_save *w)
{
    struct xnode n;
    int got;
    while ((got = next_node(w, &n)) > 0 && !w->out->failed) write_node(w, &n);
    if (got == 0 && w->count != w->s.length) w->out->failed = true;
    return got == 0;
}

/* -- head and groups --------------------------------------------------------------------------- */

static bool stream_save_head(struct rdb_stream_save *w)
{
    rdb_put_len(w->out, w->s.length);
    stream_save_put_id(w->out, w->s.last);
    stream_save_put_id(w->out, w->s.first);
    stream_save_put_id(w->out, w->s.max_deleted);
    rdb_put_len(w->out, w->s.added);
    rdb_put_len(w->out, w->s.groups);
    xgroup_walk(&w->groups, &w->s);
    return true;
}

/* Writes the header of the next group, or ends. */
static bool write_group(struct rdb_stream_save *w)
{
    bytes name;
    if (!xgroup_next(&w->groups, &name, &w->group)) {
        w->phase = STREAM_DONE - 1;
        return true;
    }
    rdb_put_string(w->out, name);
    stream_save_put_id(w->out, w->group.last);
    rdb_put_len(w->out, (u64)w->group.entries_read);
    rdb_put_len(w->out, w->left = w->group.pending);
    stream_spend(w, name.n);
    return true;
}

/* Writes pending entries of a group or of a consumer. */
static bool write_pending(struct rdb_stream_save *w, bool owned)
{
    struct stream_id id;
    struct xpending p;
    bytes row;
    if (!w->walking)
        xpending_walk(&w->pending, &w->s, &w->group, owned ? &w->consumer : NULL, STREAM_ID_MIN,
                      STREAM_ID_MAX, false);
    w->walking = true;
    for (; w->left > 0 && *w->budget > 0; w->left--) {
        if (!xwalk_next(&w->pending, &id, &row)) {
            w->out->failed = true;
            return false;
        }
        put_raw_id(w->out, id);
        if (!owned) {
            xpending_read(row, &p);
            rdb_put_u64(w->out, (u64)p.time_ms);
            rdb_put_len(w->out, p.count);
        }
        stream_spend(w, STREAM_ID_RAW);
    }
    if (w->left > 0) return false;
    xwalk_end(&w->pending);
    if (owned) {
        w->phase = STREAM_CONSUMER - 1; /* the next one */
        return true;
    }
    rdb_put_len(w->out, w->group.consumers);
    xname_walk_end(&w->consumers);
    xconsumer_walk(&w->consumers, &w->s, &w->group);
    return true;
}

static bool write_consumer(struct rdb_stream_save *w)
{
    bytes name;
    if (!xconsumer_next(&w->consumers, &name, &w->consumer)) {
        w->phase = STREAM_GROUP - 1; /* the next one */
        return true;
    }
    rdb_put_string(w->out, name);
    rdb_put_u64(w->out, (u64)w->consumer.seen_ms);
    rdb_put_len(w->out, w->left = w->consumer.pending);
    stream_spend(w, name.n);
    return true;
}

/* True: continue with the next phase, which some phases set themselves. */
static bool stream_save_run_phase(struct rdb_stream_save *w)
{
    switch (w->phase) {
    case STREAM_SURVEY: return stream_save_survey(w);
    case STREAM_NODES: return write_nodes(w);
    case STREAM_HEAD: return stream_save_head(w);
    case STREAM_GROUP: return write_group(w);
    case STREAM_PENDING: return write_pending(w, false);
    case STREAM_CONSUMER: return write_consumer(w);
    case STREAM_OWNED: return write_pending(w, true);
    case STREAM_DONE: break;
    }
    return false;
}

bool rdb_stream_save_step(struct rdb_stream_save *w)
{
    while (w->phase != STREAM_DONE && *w->budget > 0 && !w->out->failed && stream_save_run_phase(w)) {
        w->phase++;
        w->walking = false;
    }
    return w->phase == STREAM_DONE;
}
