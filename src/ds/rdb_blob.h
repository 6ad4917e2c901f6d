/* Redis's packed forms of small collections, as they lie in RDB: ziplist, zipmap, intset and
 * listpack are read, listpack and intset written. Nothing of what is read is trusted. */
#ifndef MAYFLY_DS_RDB_BLOB_H
#define MAYFLY_DS_RDB_BLOB_H

#include "base/buf.h"
#include "ds/listpack.h"

enum rdb_blob_kind { BLOB_ZIPLIST, BLOB_ZIPMAP, BLOB_INTSET, BLOB_LISTPACK };

#define RDB_BLOB_KEPT 256

/* A walk over the elements, in order; those of a zipmap are field, value, field, value … */
struct rdb_blob {
    enum rdb_blob_kind kind;
    const char *p, *end; /* what is left, the end mark included */
    u64 seen, announced; /* elements; UINT64_MAX: the header doesn't say */
    u32 width;           /* of an intset's integers */
    size_t previous;     /* size of the last element: a ziplist repeats it */
    const char *error;   /* what is wrong; NULL: nothing */
    char digits[RDB_BLOB_KEPT][NUM_I64_LEN + 3]; /* of integers: so many slices live at a time */
};

/* The bytes must stay while the walk goes on. A blob that is not well-formed says so in `error`,
 * here or at the element where it shows. */
void rdb_blob_open(struct rdb_blob *b, enum rdb_blob_kind kind, bytes raw);

/* The next element. False: there is none, or (`error`) something is wrong. */
bool rdb_blob_next(struct rdb_blob *b, bytes *item);

/* The same, of an element that has to be a number. */
bool rdb_blob_next_score(struct rdb_blob *b, double *score);

/* -- writing: rdb_pack.c ----------------------------------------------------------------------- */

#define RDB_LISTPACK_HEADER 6
#define RDB_BLOB_END 0xff        /* the last byte of all but intsets */
#define RDB_BLOB_COUNTLESS 65535 /* a 16-bit count that did not suffice */

/* An element's size, to be read backward from the next one, in listpack_backward_cost(n) bytes. */
void rdb_put_backward(char *to, u64 n);

/* A listpack in the making. A zeroed buf will do; it is to be begun and ended. */
void rdb_pack_begin(struct buf *pack);
void rdb_pack_add(struct buf *pack, bytes item); /* as an integer, if it reads as one */
void rdb_pack_end(struct buf *pack, u64 count);

/* What a listpack of one element, which is no integer, has before and after it. Returns the size
 * of the whole. */
#define RDB_PACK_HEAD_MAX 11
#define RDB_PACK_TAIL_MAX 6
size_t rdb_pack_around(size_t n, struct buf *head, struct buf *tail);

/* An intset; sorts the numbers, which must differ. */
void rdb_intset(struct buf *out, i64 *v, u32 n);

#endif
