/* Streams in RDB (types 15, 19 and 21). A stream is
 *
 *   number of nodes · (ID of its first entry, as a string of 16 bytes · listpack) …
 *   length · last ID · first ID · highest deleted ID · entries ever added      (the last three since 7.0)
 *   number of groups · (name · last ID · entries read (since 7.0)
 *                       · number pending · (raw ID · u64 time of delivery · count) …
 *                       · number of consumers · (name · u64 seen [· u64 active, since 7.2]
 *                                                · number pending · raw ID …) …) …
 *
 * and a node's listpack
 *
 *   live · deleted · number of fields · field … · 0
 *   (flags · ms and seq after the node's · [number of fields] · [field] · value … · elements so far) …
 *
 * where an entry without flag SAME has its own field names, and one with DELETED is none. */
#ifndef MAYFLY_RDB_RDB_STREAM_H
#define MAYFLY_RDB_RDB_STREAM_H

#include "rdb/rdb_value.h"
#include "xstream/xgroup.h"

enum { RDB_ENTRY_DELETED = 1, RDB_ENTRY_SAME = 2 };

/* State of writing a stream in slices; private to rdb_stream_save.c. */
struct rdb_stream_save {
    struct rdb_out *out;
    i64 *budget;
    struct xstream s;
    enum {
        STREAM_SURVEY, STREAM_NODES, STREAM_HEAD, STREAM_GROUP, STREAM_PENDING, STREAM_CONSUMER, STREAM_OWNED,
        STREAM_DONE
    } phase;
    bool walking;     /* the iterator of this phase is in use */
    u64 count;        /* nodes that have entries, then entries written */
    struct xnode_walk nodes;
    struct xname_walk groups, consumers;
    struct xwalk pending;
    struct xgroup group;
    struct xconsumer consumer;
    u64 left;         /* pending entries to write */
    struct buf pack;
};

struct rdb_stream_save *rdb_stream_save_begin(struct rdb_out *out, struct engine *eng, struct key_ref *ref,
                                              i64 *budget);
bool rdb_stream_save_step(struct rdb_stream_save *w); /* runs while there is budget; true: complete */
void rdb_stream_save_release(struct rdb_stream_save *w);

/* Reads a stream into l->ref, which was just created empty. False: l->in->error says why. */
NODISCARD bool rdb_stream_load(struct rdb_load *l, enum rdb_type type);

#endif
