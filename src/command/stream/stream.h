/* Streams on top of an engine's rows (engine.h, struct rows_ops): what the head and the rows mean, which is
 * the same on every engine. Numbers are big-endian, so that the order of rows is that of IDs, ms and seq.
 *
 *   e · id (u64, u64)         an entry -> its fields: names first, then values (xentry)
 *   n · id                    a node: entries that Redis would keep together -> struct xnode; see below
 *   g · name, ended           a group -> struct xgroup
 *   c · u32 g · name, ended   a consumer of group number g -> struct xconsumer
 *   d · u32 g · u32 c         … and its name
 *   p · u32 g · id            delivered by g and not acknowledged -> struct xpending
 *   q · u32 g · u32 c · id    the same by consumer
 *
 * A name is ended in such a way that none is the beginning of another, and that names sort as their bytes do:
 * 00 becomes 00 ff, and 00 01 ends it. Counts that Redis answers without counting are kept in these records.
 *
 * Nodes. XADD and XTRIM with ~ leave what Redis's do, which takes whole nodes away only, of
 * stream-node-max-entries and -bytes: so we know where Redis's nodes would begin and how large they would be.
 * The last one's record, which every XADD changes, is in the head; it becomes a row when the next one begins.
 *
 * Names are of this kind, xstream, because `stream` is the replication's. */
#ifndef MAYFLY_COMMAND_STREAM_STREAM_H
#define MAYFLY_COMMAND_STREAM_STREAM_H

#include "command/ctx.h"

/* -- IDs: stream_id.c -------------------------------------------------------------------------- */

struct stream_id {
    u64 ms, seq;
};

#define STREAM_ID_MIN ((struct stream_id){0, 0})
#define STREAM_ID_MAX ((struct stream_id){UINT64_MAX, UINT64_MAX})
#define STREAM_ID_TEXT 48 /* room for one in text */
#define STREAM_ID_RAW 16

int stream_id_cmp(struct stream_id a, struct stream_id b);
bool stream_id_incr(struct stream_id *id); /* false: there is none after it */
bool stream_id_decr(struct stream_id *id);
static inline bool stream_id_zero(struct stream_id id) { return id.ms == 0 && id.seq == 0; }

bytes stream_id_print(char text[STREAM_ID_TEXT], struct stream_id id);
void stream_id_pack(char to[STREAM_ID_RAW], struct stream_id id);
struct stream_id stream_id_unpack(const char *from);
void reply_stream_id(struct reply *r, struct stream_id id);

/* As Redis reads one. missing_seq: if only the milliseconds are given. strict: no - and +. seq_given (may be
 * NULL): whether ms-* is allowed, and if so whether it was not that. */
bool stream_id_parse(bytes text, u64 missing_seq, bool strict, bool *seq_given, struct stream_id *id);

/* The same; false: the error was replied. */
NODISCARD bool ctx_stream_id(struct ctx *c, bytes text, u64 missing_seq, struct stream_id *id); /* strict */
NODISCARD bool ctx_stream_edge(struct ctx *c, bytes text, u64 missing_seq, bool *exclusive,
                               struct stream_id *id);

/* start and end of an interval, made inclusive; both may have a ( before them. */
NODISCARD bool ctx_stream_interval(struct ctx *c, bytes start, bytes end, struct stream_id *from,
                                   struct stream_id *to);

/* -- the stream: stream.c ---------------------------------------------------------------------- */

struct xnode {
    struct stream_id id, last; /* of its first entry, and of the last that was ever added to it */
    u32 live, gone;            /* entries; those deleted, which Redis only marks */
    u32 bytes;                 /* of its listpack in Redis, but for these two counts */
    u64 fields;                /* checksum of its first entry's field names: others with them are shorter */
};

/* A stream at hand: its head, decoded. Whoever changes it says xstream_save in the end. */
struct xstream {
    struct engine *eng;
    struct key_ref *ref;
    u64 length;
    struct stream_id last;        /* the highest ever, unless XSETID said otherwise */
    struct stream_id first;       /* of the entries there are; 0-0: none */
    struct stream_id max_deleted; /* by XDEL */
    u64 added;                    /* entries ever */
    u32 groups, next_group;       /* how many, and the number of the next one */
    u32 nodes;                    /* the tail included */
    struct xnode tail;            /* if there are nodes */
};

void xstream_open(struct xstream *s, struct engine *eng, struct key_ref *ref);
void xstream_save(struct xstream *s);

/* Fields of an entry as a row has them: count · (length · name) … · (length · value) … */
struct xentry {
    const char *name, *value, *end; /* where the walk is */
    u64 left;
    u64 count;
};

void xentry_pack(struct buf *to, const bytes *pairs, u64 count);
void xentry_open(struct xentry *e, bytes row);
bool xentry_next(struct xentry *e, bytes *name, bytes *value);
bytes xentry_names(bytes row); /* the part before the values */
void xentry_open_names(struct xentry *e, bytes names); /* such a part: only the names can be taken */
bytes xentry_name(struct xentry *e);
void reply_xentry(struct reply *r, struct stream_id id, bytes row);

/* How large Redis lets a node become. */
struct xnode_limits {
    u64 bytes, entries;
};
struct xnode_limits xnode_limits(const struct keyspace *ks);

/* Adds an entry, whose id is higher than s->last. */
void xstream_append(struct xstream *s, struct xnode_limits limits, struct stream_id id, bytes packed);

bool xstream_has(struct xstream *s, struct stream_id id, bytes *packed); /* packed may be NULL */
bool xstream_delete(struct xstream *s, struct stream_id id); /* as XDEL; false: it isn't there */

struct xtrim {
    enum { TRIM_NONE, TRIM_MAXLEN, TRIM_MINID } by;
    bool approx;
    u64 maxlen;
    struct stream_id minid;
    u64 limit; /* of entries; 0: none */
};
u64 xstream_trim(struct xstream *s, const struct xtrim *t); /* how many went */

/* The id after `last` at this time; false: there is none any more. */
bool xstream_next_id(const struct xstream *s, i64 now_ms, struct stream_id *id);

/* -- nodes: stream_node.c ---------------------------------------------------------------------- */

u64 xnode_size(const struct xnode *n); /* bytes of its listpack */
u64 xnode_fields(bytes names);         /* for xnode.fields: of xentry_names */
void xnode_begin(struct xnode *n, struct stream_id id, bytes packed);   /* made for this entry, without it */
void xnode_add(struct xnode *n, struct stream_id id, bytes packed);
bool xstream_node_of(struct xstream *s, struct stream_id id, struct xnode *n); /* that this id falls into */
void xstream_put_node(struct xstream *s, const struct xnode *n);
void xstream_push_node(struct xstream *s, const struct xnode *n); /* becomes the tail */
void xstream_drop_node(struct xstream *s, const struct xnode *n);

/* The last ID is another, not below an entry's. It may be below what was deleted: then nodes end with it. */
void xstream_set_last(struct xstream *s, struct stream_id last);

/* -- walking over rows ------------------------------------------------------------------------- */

#define XROW_MAX 32 /* rows without names in them */

struct xrow {
    char p[XROW_MAX];
    size_t n;
};

/* The rows above, and the beginnings that rows of a kind have in common. */
struct xrow xrow_kind(char kind);
struct xrow xrow_entry(struct stream_id id);
struct xrow xrow_node(struct stream_id id);
struct xrow xrow_of_group(char kind, u32 group);
struct xrow xrow_pending(u32 group, struct stream_id id);
struct xrow xrow_owner(u32 group, u32 consumer);
struct xrow xrow_owned(u32 group, u32 consumer, struct stream_id id);
struct xrow xrow_consumer_name(u32 group, u32 consumer);
struct xrow xrow_after(struct xrow prefix); /* above all that begin with this */
static inline bytes xrow_bytes(const struct xrow *r) { return bytes_of(r->p, r->n); }

/* Rows that begin with `prefix` and end in an id, from one to another. */
struct xwalk {
    struct rows_iter it;
    struct xrow prefix;
    struct stream_id stop;
};
void xwalk(struct xwalk *w, struct xstream *s, struct xrow prefix, struct stream_id from, struct stream_id to,
           bool reverse);
bool xwalk_next(struct xwalk *w, struct stream_id *id, bytes *value); /* good until the next step */
void xwalk_end(struct xwalk *w); /* of one that is left before xwalk_next was false; and of any other */

/* The id of the first or last such row; false: there is none. */
bool xwalk_edge(struct xstream *s, struct xrow prefix, bool last, struct stream_id *id);

void xstream_walk(struct xwalk *w, struct xstream *s, struct stream_id from, struct stream_id to,
                  bool reverse);

/* Over nodes from the first one on, the tail last. The stream may not be changed meanwhile. */
struct xnode_walk {
    struct xstream *s;
    struct xwalk w;
    bool tail_given;
};
void xnode_walk(struct xnode_walk *w, struct xstream *s);
bool xnode_next(struct xnode_walk *w, struct xnode *n);
void xnode_walk_end(struct xnode_walk *w); /* of one that is left before xnode_next was false */

/* -- commands' common ground: stream_cmd.c ------------------------------------------------------ */

/* Looks the stream up. As ctx_read and ctx_write. */
NODISCARD err ctx_read_stream(struct ctx *c, bytes key, struct key_ref *ref, struct xstream *s);
NODISCARD err ctx_write_stream(struct ctx *c, bytes key, struct key_ref *ref, struct xstream *s);

#endif
