/* Sizes of elements in a Redis listpack, and the limits up to which Redis encodes a list as one listpack.
 *
 * An element is a header, its data, and the size of both again, for reading backward. Mayfly keeps no
 * listpacks in memory. It writes them to RDB files, and derives OBJECT ENCODING and the nodes of streams from
 * their sizes. */
#ifndef MAYFLY_DS_LISTPACK_H
#define MAYFLY_DS_LISTPACK_H

#include "base/num.h"

#define LISTPACK_EMPTY 7        /* bytes: a six-byte header and the end mark */
#define LISTPACK_SAFE_BYTES 8192 /* maximum for a list whose limit is a number of elements */

/* Redis's bounds, one lower than necessary: its readers reject any other choice. */
static inline size_t listpack_backward_cost(u64 n)
{
    return n <= 127 ? 1 : n < 16383 ? 2 : n < 2097151 ? 3 : n < 268435455 ? 4 : 5;
}

static inline size_t listpack_int_cost(i64 v)
{
    if (v >= 0 && v <= 127) return 2;
    if (v >= -4096 && v <= 4095) return 3;
    if (v >= INT16_MIN && v <= INT16_MAX) return 4;
    if (v >= -(1 << 23) && v < 1 << 23) return 5;
    return v >= INT32_MIN && v <= INT32_MAX ? 6 : 10;
}

static inline size_t listpack_cost(bytes element)
{
    i64 v;
    if (element.n <= 20 && num_parse_i64(element, &v)) return listpack_int_cost(v);
    size_t n = element.n + (element.n < 64 ? 1 : element.n < 4096 ? 2 : 5);
    return n + listpack_backward_cost(n);
}

/* `limit` is list-max-listpack-size: -1 to -5 are 4 to 64 KB, others a number of elements. */
static inline u64 listpack_bytes_max(i64 limit)
{
    return limit >= 0 ? LISTPACK_SAFE_BYTES : 2048ULL << MIN(-limit, 5);
}

/* Whether a list of this size is a quicklist. */
static inline bool listpack_exceeds(i64 limit, u64 bytes, u64 count)
{
    return bytes > listpack_bytes_max(limit) || (limit >= 0 && count > (u64)MAX(limit, 1));
}

/* Whether a quicklist that has shrunk to this size becomes a listpack again: at half the limit. */
static inline bool listpack_is_half(i64 limit, u64 bytes, u64 count)
{
    if (limit < 0) return bytes <= listpack_bytes_max(limit) / 2;
    return bytes <= LISTPACK_SAFE_BYTES && count <= (u64)MAX(limit, 1) / 2;
}

#endif
