/* The HyperLogLog inside a string, byte for byte as Redis 7.0 stores it, since users GET, SET and RESTORE
 * these strings.
 *
 *   "HYLL" · encoding (0 dense, 1 sparse) · 3 unused bytes
 *   · cached cardinality, 8 bytes little-endian, whose top bit means "stale"
 *   · 16384 registers
 *
 * Dense: 6 bits per register, lowest bits first. Sparse: runs of equal registers,
 *   00nnnnnn           n+1 zeros          (ZERO)
 *   01nnnnnn nnnnnnnn  n+1 zeros          (XZERO)
 *   1vvvvvnn           n+1 times v+1      (VAL)
 *
 * A string from a client may be corrupt after its header; functions that walk a sparse one report it. */
#ifndef MAYFLY_COMMAND_STRING_HLL_H
#define MAYFLY_COMMAND_STRING_HLL_H

#include "base/buf.h"

enum {
    HLL_REGISTERS = 1 << 14,
    HLL_HEADER = 16,
    HLL_CACHE_AT = 8, /* the cached cardinality … */
    HLL_CACHE_LEN = 8,
    HLL_DENSE_LEN = HLL_HEADER + HLL_REGISTERS * 6 / 8,
};

/* Whether a string has the header, and the length, of a HyperLogLog. */
bool hll_check(bytes s);
bool hll_is_dense(bytes h);

/* Appends an empty, sparse one. */
void hll_init(struct buf *h);

/* The register an element falls in, and the rank it has there. */
u32 hll_register(bytes element, u8 *rank);

/* Raises a register to at least `rank`; a sparse one grows, and turns dense when it must: a rank it can't
 * hold, or more than sparse_max bytes. The cached cardinality is left to the caller. */
enum hll_raised { HLL_CORRUPT = -1, HLL_SAME = 0, HLL_RAISED = 1 };
enum hll_raised hll_raise(struct buf *h, u32 sparse_max, u32 reg, u8 rank);

/* The same for dense ones, whose length never changes. */
u8 hll_dense_get(const char *h, u32 reg);
void hll_dense_set(char *h, u32 reg, u8 rank);

/* False: corrupt, and nothing was changed. */
bool hll_make_dense(struct buf *h);

/* Appends the runs of a sparse one as PFDEBUG DECODE shows them: "Z:5 v:2,1 z:3". */
void hll_print_runs(bytes h, struct buf *out);

/* ranks[i] = max(ranks[i], register i). False: corrupt. */
bool hll_merge(bytes h, u8 ranks[HLL_REGISTERS]);

/* The estimated number of different elements. False: corrupt. */
bool hll_count(bytes h, u64 *count);
u64 hll_count_ranks(const u8 ranks[HLL_REGISTERS]);

/* The cardinality kept in the header. hll_cached: false if it is stale. */
bool hll_cached(bytes h, u64 *count);
void hll_set_cache(char *h, u64 count);
void hll_drop_cache(char *h);

#endif
