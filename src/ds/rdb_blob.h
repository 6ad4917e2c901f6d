/* Redis's compact encodings of small collections in RDB. Reads ziplist, zipmap, intset and listpack; writes
 * listpack and intset. The reader trusts no input. */
#ifndef MAYFLY_DS_RDB_BLOB_H
#define MAYFLY_DS_RDB_BLOB_H

#include "base/buf.h"
#include "ds/listpack.h"

enum rdb_blob_kind { BLOB_ZIPLIST, BLOB_ZIPMAP, BLOB_INTSET, BLOB_LISTPACK };

#define RDB_BLOB_KEPT 256

/* Iterates over the elements in order; those of a zipmap are field, value, field, value … */
struct rdb_blob {
    enum rdb_blob_kind kind;
    const char *p, *end; /* the rest of the input, including the end mark */
    u64 seen, announced; /* elements; UINT64_MAX: the header does not say */
    u32 width;           /* of an intset's integers */
    size_t previous;     /* size of the last element: a ziplist repeats it */
    const char *error;   /* NULL: none */
    char digits[RDB_BLOB_KEPT][NUM_I64_LEN + 3]; /* integers as text: so many slices stay valid */
};

/* Borrows the bytes until the last element is read. A malformed blob sets `error`, here or at the element
 * where it is detected. */
void rdb_blob_open(struct rdb_blob *b, enum rdb_blob_kind kind, bytes raw);

/* The next element. False: the end, or `error` is set. */
bool rdb_blob_next(struct rdb_blob *b, bytes *item);

/* The same for an element that must be a number. */
bool rdb_blob_next_score(struct rdb_blob *b, double *score);

/* -- writing: rdb_pack.c ----------------------------------------------------------------------- */

#define RDB_LISTPACK_HEADER 6
#define RDB_BLOB_END 0xff        /* the last byte of all but intsets */
#define RDB_BLOB_COUNTLESS 65535 /* the 16-bit count when there are more elements */

/* Writes an element's size for reading backward, in listpack_backward_cost(n) bytes. */
void rdb_put_backward(char *to, u64 n);

/* Builds a listpack in `pack`: begin, add elements, end. */
void rdb_pack_begin(struct buf *pack);
void rdb_pack_add(struct buf *pack, bytes item); /* stored as an integer if it is one */
void rdb_pack_end(struct buf *pack, u64 count);

/* Writes the bytes before and after the element of a listpack with a single element that is not an integer.
 * Returns the total size of the listpack. */
#define RDB_PACK_HEAD_MAX 11
#define RDB_PACK_TAIL_MAX 6
size_t rdb_pack_around(size_t n, struct buf *head, struct buf *tail);

/* Writes an intset. Sorts the numbers, which must be distinct. */
void rdb_intset(struct buf *out, i64 *v, u32 n);

#endif
