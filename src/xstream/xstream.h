/* Streams, stored in an engine's rows (engine.h, struct rows_ops). A stream is one head record and a set of
 * ordered rows; their layout is the same on every engine. Numbers are big-endian, so rows sort by ID: first
 * by ms, then by seq.
 *
 *   e · id (u64, u64)         an entry -> its fields: names first, then values (xentry)
 *   n · id                    a node: the entries Redis would keep in one listpack -> struct xnode; see below
 *   g · name, terminated      a group -> struct xgroup
 *   c · u32 g · name, term.   a consumer of group number g -> struct xconsumer
 *   d · u32 g · u32 c         the name of consumer number c
 *   p · u32 g · id            an entry g delivered that is not acknowledged -> struct xpending
 *   q · u32 g · u32 c · id    the same, indexed by consumer; no value
 *
 * Names in rows are escaped and terminated (00 becomes 00 ff, 00 01 ends the name), so that no name is a
 * prefix of another and names sort by their bytes. Counts that Redis replies in O(1) are kept in the records.
 *
 * Nodes. XADD and XTRIM with ~ only remove whole nodes, whose size is set by stream-node-max-entries and
 * -bytes. To trim exactly the entries Redis would trim, we record where Redis's nodes would begin and how
 * large they would be. Every XADD changes the last node, so its record lives in the head; it becomes a row
 * when the next node begins.
 *
 * Types and functions are called xstream_…, because `stream` is the replication stream elsewhere. */
#ifndef MAYFLY_XSTREAM_XSTREAM_H
#define MAYFLY_XSTREAM_XSTREAM_H

#include "engine/engine.h"

/* -- IDs: xid.c --------------------------------------------------------------------------------- */

struct stream_id {
    u64 ms, seq;
};

#define STREAM_ID_MIN ((struct stream_id){0, 0})
#define STREAM_ID_MAX ((struct stream_id){UINT64_MAX, UINT64_MAX})
#define STREAM_ID_TEXT 48 /* buffer size for a printed ID */
#define STREAM_ID_RAW 16

int stream_id_cmp(struct stream_id a, struct stream_id b);
bool stream_id_incr(struct stream_id *id); /* false: it is already the highest */
bool stream_id_decr(struct stream_id *id); /* false: it is already 0-0 */
static inline bool stream_id_zero(struct stream_id id) { return id.ms == 0 && id.seq == 0; }

bytes stream_id_print(char text[STREAM_ID_TEXT], struct stream_id id);
void stream_id_pack(char to[STREAM_ID_RAW], struct stream_id id);
struct stream_id stream_id_unpack(const char *from);

/* Parses an ID by Redis's rules. missing_seq is the seq to use if only ms is given. strict refuses - and +.
 * If seq_given is not NULL, ms-* is accepted too, and sets *seq_given to false. */
bool stream_id_parse(bytes text, u64 missing_seq, bool strict, bool *seq_given, struct stream_id *id);

/* -- the stream: xstream.c ---------------------------------------------------------------------- */

struct xnode {
    struct stream_id id, last; /* ID of the first entry, and of the last one ever added */
    u32 live, gone;            /* entries present, and entries deleted (Redis only flags those) */
    u32 bytes;                 /* size of its listpack in Redis, without the two counts above */
    u64 fields;                /* checksum of the first entry's field names; Redis stores them only once */
};

/* An open stream: its decoded head. After changing it, call xstream_save() once at the end. */
struct xstream {
    struct engine *eng;
    struct key_ref *ref;
    u64 length;
    struct stream_id last;        /* highest ID ever added, or the one XSETID set */
    struct stream_id first;       /* ID of the first entry present; 0-0: the stream is empty */
    struct stream_id max_deleted; /* highest ID removed by XDEL */
    u64 added;                    /* entries ever added */
    u32 groups, next_group;       /* number of groups, and the number the next group gets */
    u32 nodes;                    /* including the tail */
    struct xnode tail;            /* the last node; valid if nodes > 0 */
};

void xstream_open(struct xstream *s, struct engine *eng, struct key_ref *ref);
void xstream_save(struct xstream *s);
struct stream_id xstream_head_last(bytes head); /* the last ID that such a head has */

/* Iterates over the fields of an entry's row: count · (length · name) … · (length · value) … */
struct xentry {
    const char *name, *value, *end; /* the next name and value, and the end of the row */
    u64 left;
    u64 count;
};

void xentry_pack(struct buf *to, const bytes *pairs, u64 count);
void xentry_open(struct xentry *e, bytes row);
bool xentry_next(struct xentry *e, bytes *name, bytes *value);
bool xentry_ok(bytes row);     /* whether bytes that came from elsewhere are such a row */
bytes xentry_names(bytes row);                         /* the part of a row before the values */
void xentry_open_names(struct xentry *e, bytes names); /* opens such a part; then use xentry_name only */
bytes xentry_name(struct xentry *e);

/* stream-node-max-bytes and stream-node-max-entries. 0: none. */
struct xnode_limits {
    u64 bytes, entries;
};

/* Adds an entry. Its id must be higher than s->last. */
void xstream_append(struct xstream *s, struct xnode_limits limits, struct stream_id id, bytes packed);
/* Adds an entry anywhere, or replaces the one that has this id: what other sites added may come late. Sizes
 * of nodes are estimates then. */
void xstream_insert(struct xstream *s, struct xnode_limits limits, struct stream_id id, bytes packed);

bool xstream_has(struct xstream *s, struct stream_id id, bytes *packed); /* packed may be NULL */
bool xstream_delete(struct xstream *s, struct stream_id id); /* as XDEL; false: no such entry */

struct xtrim {
    enum { TRIM_NONE, TRIM_MAXLEN, TRIM_MINID } by;
    bool approx;
    u64 maxlen;
    struct stream_id minid;
    u64 limit; /* most entries to remove; 0: no limit */
};
u64 xstream_trim(struct xstream *s, const struct xtrim *t); /* returns the number of entries removed */

/* The ID that XADD * uses at this time, or XADD ms-*: the lowest after the last one that has at least this
 * ms. At a site its seq ends in the gid, as the low byte, so that two sites never make the same. False: the
 * IDs are exhausted. */
bool xstream_next_id(const struct xstream *s, u64 ms, struct stream_id *id);

/* -- nodes: xnode.c ---------------------------------------------------------------------- */

u64 xnode_size(const struct xnode *n); /* bytes of its listpack in Redis */
u64 xnode_fields(bytes names);         /* checksum for xnode.fields; `names` is from xentry_names() */
void xnode_begin(struct xnode *n, struct stream_id id, bytes packed); /* an empty node for this entry */
void xnode_add(struct xnode *n, struct stream_id id, bytes packed);   /* accounts for an added entry */
bool xstream_node_of(struct xstream *s, struct stream_id id, struct xnode *n); /* the node this ID falls in */
void xstream_put_node(struct xstream *s, const struct xnode *n);               /* stores a changed node */
void xstream_push_node(struct xstream *s, const struct xnode *n); /* appends it as the new tail */
void xstream_drop_node(struct xstream *s, const struct xnode *n);

/* Sets the last ID, which must not be below that of any entry. It may be below IDs that were deleted; nodes
 * are then cut back to it. */
void xstream_set_last(struct xstream *s, struct stream_id last);

/* -- walking over rows ------------------------------------------------------------------------- */

#define XROW_MAX 32 /* longest row key that contains no name */

struct xrow {
    char p[XROW_MAX];
    size_t n;
};

static inline bool xrow_is_entry(bytes row) { return row.n == 1 + STREAM_ID_RAW && row.p[0] == 'e'; }

/* Keys of the rows listed at the top, and prefixes shared by rows of one kind. */
struct xrow xrow_kind(char kind);
struct xrow xrow_entry(struct stream_id id);
struct xrow xrow_node(struct stream_id id);
struct xrow xrow_of_group(char kind, u32 group);
struct xrow xrow_pending(u32 group, struct stream_id id);
struct xrow xrow_owner(u32 group, u32 consumer);
struct xrow xrow_owned(u32 group, u32 consumer, struct stream_id id);
struct xrow xrow_consumer_name(u32 group, u32 consumer);
struct xrow xrow_after(struct xrow prefix); /* sorts after every row with this prefix */
static inline bytes xrow_bytes(const struct xrow *r) { return bytes_of(r->p, r->n); }

/* Walks the rows `prefix` · id with from <= id <= to, upwards or in reverse. Rows must not be changed during
 * a walk. */
struct xwalk {
    struct rows_iter it;
    struct xrow prefix;
    struct stream_id stop;
};
void xwalk(struct xwalk *w, struct xstream *s, struct xrow prefix, struct stream_id from, struct stream_id to,
           bool reverse);
bool xwalk_next(struct xwalk *w, struct stream_id *id, bytes *value); /* value is valid until the next step */
void xwalk_end(struct xwalk *w); /* needed if the walk stops before xwalk_next is false; else harmless */

/* The ID of the first or last row with this prefix; false: there is none. */
bool xwalk_edge(struct xstream *s, struct xrow prefix, bool last, struct stream_id *id);

void xstream_walk(struct xwalk *w, struct xstream *s, struct stream_id from, struct stream_id to,
                  bool reverse);

/* Walks over all nodes in order; the tail comes last. The stream must not be changed during the walk. */
struct xnode_walk {
    struct xstream *s;
    struct xwalk w;
    bool tail_given;
};
void xnode_walk(struct xnode_walk *w, struct xstream *s);
bool xnode_next(struct xnode_walk *w, struct xnode *n);
void xnode_walk_end(struct xnode_walk *w); /* required if the walk stops before xnode_next returned false */

#endif
