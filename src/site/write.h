/* Local writes. Each function makes one effect and applies it. They decide nothing that a command decides
 * (whether a key has the right type, what an option means), only how a write changes the atoms of a key.
 *
 * A key that is past its deadline must have been deleted before: site_expire(). */
#ifndef MAYFLY_SITE_WRITE_H
#define MAYFLY_SITE_WRITE_H

#include "site/site.h"

/* -- moves, of which effects are composed: appended to s->moves; site_commit() makes the effect */
/* Appends what CLEAR or FLUSH says about the counters of a key. */
void site_put_key_seen(struct site *s, struct site_key *k, enum site_op op, struct buf *to);
void site_move_clear(struct site *s, struct site_key *k,
                     const struct site_clock *scope); /* scope: an expiry */
/* The moves at the beginning of a write to a key of this type: a clear if there is nothing, otherwise the
 * claim, the removal of hidden cells of other types, and the deadline, which is kept. */
void site_move_start(struct site *s, struct site_key *k, enum value_type kind);
void site_move_claim(struct site *s, const struct site_key *k, enum value_type kind);
/* The value of one cell; fresh: the key was cleared by the same effect. */
void site_move_put(struct site *s, struct site_key *k, enum value_type kind, bytes path, bytes value,
                   bool fresh);
void site_move_rem(struct site *s, struct site_key *k, enum value_type kind, bytes path);
void site_move_add(struct site *s, struct site_key *k, enum value_type kind, bytes path,
                   struct site_num delta);
void site_move_ttl(struct site *s, const struct site_key *k, i64 at_ms, struct site_dot birth);

/* -- whole writes */
void site_write_set(struct site *s, u32 db, bytes name, bytes value,
                    i64 at_ms); /* SET; at_ms 0: no deadline */
void site_write_put(struct site *s, u32 db, bytes name, enum value_type kind, const bytes *pairs, u32 n);
/* ^ pairs: path and value in turn. APPEND, SET KEEPTTL, HSET, SADD, ZADD, LSET. */
/* HSETEX of a field; at_ms 0: its deadline stays. HEXPIRE of some that show; 0: HPERSIST. */
void site_write_field(struct site *s, u32 db, bytes name, bytes field, bytes value, i64 at_ms);
void site_write_field_ttl(struct site *s, u32 db, bytes name, const bytes *fields, u32 n, i64 at_ms);
void site_write_rem(struct site *s, u32 db, bytes name, enum value_type kind, const bytes *paths, u32 n);
/* ^ of cells that show; a key that is left with none is cleared */
void site_write_add(struct site *s, u32 db, bytes name, enum value_type kind, bytes path,
                    struct site_num delta);
void site_write_del(struct site *s, u32 db, bytes name);
void site_write_ttl(struct site *s, u32 db, bytes name, i64 at_ms); /* EXPIRE; 0: PERSIST */
void site_write_copy(struct site *s, u32 db, bytes from, u32 to_db, bytes to, bool move); /* RENAME: move */
void site_write_flush(struct site *s, u32 db); /* SITE_ALL_DBS: all */

/* -- streams: a put of entries by id (cell.h) is XADD, for a new stream with the cell without a path; one of
 * SITE_LAST_ID is XSETID */
void site_write_xcut(struct site *s, u32 db, bytes name, const bytes *ids, u32 n); /* XDEL, XTRIM */

/* -- lists */
void site_write_push(struct site *s, u32 db, bytes name, bool front, const bytes *values, u32 n);
/* Between the element at `index` - 1 and the one at `index`. */
void site_write_insert(struct site *s, u32 db, bytes name, u64 index, bytes value);
/* Appends the paths of elements [from, from + count), with lengths. */
void site_list_paths(struct site_key *k, u64 from, u64 count, struct buf *out);

#endif
