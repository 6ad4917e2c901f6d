/* The HyperLogLog's representation and estimator. Nothing here knows of keys.
 *
 * What a sparse string looks like depends on the order in which its runs were
 * split and joined; to be byte-identical, both happen in Redis's order. */
#include "command/string/hll.h"

#include <math.h>

enum {
    RANK_BITS = 50,       /* hash bits left after the register's 14 */
    SPARSE_RANK_MAX = 32, /* the highest rank a VAL run can hold */
    ZERO_MAX = 64,        /* the longest ZERO run; longer ones are XZERO */
    VAL_MAX = 4,          /* the longest VAL run */
    JOIN_SCAN = 5,        /* runs checked for joining after a change */
    ENCODING_AT = 4,
    DENSE = 0,
    SPARSE = 1,
};

/* -- header ----------------------------------------------------------------------- */

bool hll_is_dense(bytes h) { return h.p[ENCODING_AT] == DENSE; }

bool hll_check(bytes s)
{
    if (s.n < HLL_HEADER || memcmp(s.p, "HYLL", 4) != 0) return false;
    return s.p[ENCODING_AT] == SPARSE || (hll_is_dense(s) && s.n == HLL_DENSE_LEN);
}

void hll_init(struct buf *h)
{
    static const char empty[HLL_HEADER + 2] = {
        'H', 'Y', 'L', 'L', SPARSE, [HLL_HEADER] = 0x7f, (char)0xff, /* XZERO of all registers */
    };
    buf_append(h, empty, sizeof(empty));
}

bool hll_cached(bytes h, u64 *count)
{
    u64 v = 0;
    for (int i = HLL_CACHE_LEN - 1; i >= 0; i--) v = v << 8 | (u8)h.p[HLL_CACHE_AT + i];
    *count = v;
    return v >> 63 == 0;
}

void hll_set_cache(char *h, u64 count)
{
    for (int i = 0; i < HLL_CACHE_LEN; i++) h[HLL_CACHE_AT + i] = (char)(count >> (8 * i));
}

void hll_drop_cache(char *h) { h[HLL_CACHE_AT + HLL_CACHE_LEN - 1] |= (char)0x80; }

/* -- hashing ---------------------------------------------------------------------- */

/* MurmurHash64A, little-endian on every machine. */
static u64 murmur64(bytes s, u64 seed)
{
    const u64 m = 0xc6a4a7935bd1e995ULL;
    const int r = 47;
    const u8 *p = (const u8 *)s.p;
    u64 h = seed ^ (s.n * m);
    size_t n = s.n;

    for (; n >= 8; p += 8, n -= 8) {
        u64 k;
        memcpy(&k, p, sizeof(k));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        k = __builtin_bswap64(k);
#endif
        k *= m;
        k ^= k >> r;
        h = (h ^ k * m) * m;
    }
    if (n) {
        while (n--) h ^= (u64)p[n] << (8 * n);
        h *= m;
    }
    h ^= h >> r;
    h *= m;
    return h ^ h >> r;
}

u32 hll_register(bytes element, u8 *rank)
{
    u64 hash = murmur64(element, 0xadc83b19ULL);
    u64 rest = hash >> 14 | 1ULL << RANK_BITS; /* the sentinel bounds the rank */
    *rank = (u8)(__builtin_ctzll(rest) + 1);
    return (u32)hash & (HLL_REGISTERS - 1);
}

/* -- dense ------------------------------------------------------------------------ */

u8 hll_dense_get(const char *h, u32 reg)
{
    const u8 *p = (const u8 *)h + HLL_HEADER + reg * 6 / 8;
    u32 shift = reg * 6 % 8;
    u32 v = p[0] >> shift;
    if (shift > 2) v |= (u32)p[1] << (8 - shift); /* the last register has no second byte */
    return v & 63;
}

void hll_dense_set(char *h, u32 reg, u8 rank)
{
    u8 *p = (u8 *)h + HLL_HEADER + reg * 6 / 8;
    u32 shift = reg * 6 % 8;
    p[0] = (u8)((p[0] & ~(63u << shift)) | (u32)rank << shift);
    if (shift > 2) p[1] = (u8)((p[1] & ~(63u >> (8 - shift))) | (u32)rank >> (8 - shift));
}

/* Registers reg .. reg + 3 (reg a multiple of 4) share three bytes. */
static inline u32 dense_word(bytes h, u32 reg)
{
    const u8 *p = (const u8 *)h.p + HLL_HEADER + reg / 4 * 3;
    return p[0] | (u32)p[1] << 8 | (u32)p[2] << 16;
}

/* -- sparse ----------------------------------------------------------------------- */

struct run {
    u32 len;   /* registers */
    u8 rank;   /* their value; 0 for ZERO and XZERO */
    u8 bytes;  /* that it takes; an XZERO cut off by the end still claims 2 */
};

static struct run run_at(bytes h, size_t at)
{
    u8 b = (u8)h.p[at];
    if (b & 0x80) return (struct run){(b & 3) + 1u, (u8)((b >> 2 & 31) + 1), 1};
    if (!(b & 0x40)) return (struct run){(b & 63) + 1u, 0, 1};
    u8 low = at + 1 < h.n ? (u8)h.p[at + 1] : 0;
    return (struct run){((b & 63u) << 8 | low) + 1, 0, 2};
}

/* Writes a run, or nothing if len is 0. Returns its size: at most 2. */
static size_t run_put(u8 *out, u8 rank, u32 len)
{
    if (len == 0) return 0;
    if (rank) {
        out[0] = (u8)(0x80 | (rank - 1) << 2 | (len - 1));
        return 1;
    }
    if (len <= ZERO_MAX) {
        out[0] = (u8)(len - 1);
        return 1;
    }
    out[0] = (u8)(0x40 | (len - 1) >> 8);
    out[1] = (u8)(len - 1);
    return 2;
}

/* Moves the bytes from `from` on by delta, and the end with them. */
static void shift_tail(struct buf *h, size_t from, long delta)
{
    if (delta > 0) buf_reserve(h, (size_t)delta);
    if (delta) memmove(h->p + from + delta, h->p + from, h->n - from);
    h->n = (size_t)((long)h->n + delta);
}

/* Joins neighbouring VAL runs of one rank, looking at a few runs from `at` on. */
static void join_runs(struct buf *h, size_t at)
{
    for (int i = 0; i < JOIN_SCAN && at < h->n; i++) {
        struct run a = run_at(buf_bytes(h), at);
        if (a.rank && at + 1 < h->n) {
            struct run b = run_at(buf_bytes(h), at + 1);
            if (a.rank == b.rank && a.len + b.len <= VAL_MAX) {
                shift_tail(h, at + 1, -1);
                run_put((u8 *)h->p + at, a.rank, a.len + b.len);
                continue; /* it may join the next one too */
            }
        }
        at += a.bytes;
    }
}

static enum hll_raised promote(struct buf *h, u32 reg, u8 rank)
{
    return hll_make_dense(h) ? hll_raise(h, 0, reg, rank) : HLL_CORRUPT;
}

/* The run that covers the register is split in up to three. */
static enum hll_raised sparse_raise(struct buf *h, u32 sparse_max, u32 reg, u8 rank)
{
    if (rank > SPARSE_RANK_MAX) return promote(h, reg, rank);

    size_t at = HLL_HEADER, previous = HLL_HEADER;
    struct run r = {0};
    u32 first = 0;
    for (; at < h->n; at += r.bytes, first += r.len) {
        r = run_at(buf_bytes(h), at);
        if (reg < first + r.len) break;
        previous = at;
    }
    if (at + r.bytes > h->n || at >= h->n) return HLL_CORRUPT;
    if (r.rank >= rank) return HLL_SAME;

    u8 seq[5];
    size_t n = run_put(seq, r.rank, reg - first);
    n += run_put(seq + n, rank, 1);
    n += run_put(seq + n, r.rank, first + r.len - 1 - reg);
    long delta = (long)n - r.bytes;
    if (delta > 0 && h->n + (size_t)delta > sparse_max) return promote(h, reg, rank);

    shift_tail(h, at + r.bytes, delta);
    memcpy(h->p + at, seq, n);
    join_runs(h, previous);
    return HLL_RAISED;
}

void hll_print_runs(bytes h, struct buf *out)
{
    for (size_t at = HLL_HEADER; at < h.n;) {
        struct run r = run_at(h, at);
        const char *space = at == HLL_HEADER ? "" : " ";
        if (r.rank) buf_printf(out, "%sv:%u,%u", space, r.rank, r.len);
        else buf_printf(out, "%s%c:%u", space, r.bytes == 1 ? 'z' : 'Z', r.len);
        at += r.bytes;
    }
}

/* -- both ------------------------------------------------------------------------- */

static void dense_merge(bytes h, u8 ranks[HLL_REGISTERS])
{
    for (u32 reg = 0; reg < HLL_REGISTERS; reg += 4) {
        u32 word = dense_word(h, reg);
        for (u32 i = 0; i < 4; i++) {
            u8 rank = word >> (6 * i) & 63;
            if (rank > ranks[reg + i]) ranks[reg + i] = rank;
        }
    }
}

static bool sparse_merge(bytes h, u8 ranks[HLL_REGISTERS])
{
    u64 reg = 0;
    for (size_t at = HLL_HEADER; at < h.n;) {
        struct run r = run_at(h, at);
        if (reg + r.len > HLL_REGISTERS) return false;
        for (u32 i = 0; r.rank && i < r.len; i++)
            if (r.rank > ranks[reg + i]) ranks[reg + i] = r.rank;
        reg += r.len;
        at += r.bytes;
    }
    return reg == HLL_REGISTERS;
}

bool hll_merge(bytes h, u8 ranks[HLL_REGISTERS])
{
    if (!hll_is_dense(h)) return sparse_merge(h, ranks);
    dense_merge(h, ranks);
    return true;
}

bool hll_make_dense(struct buf *h)
{
    if (hll_is_dense(buf_bytes(h))) return true;
    u8 ranks[HLL_REGISTERS] = {0};
    if (!sparse_merge(buf_bytes(h), ranks)) return false;

    if (h->n < HLL_DENSE_LEN) buf_reserve(h, HLL_DENSE_LEN - h->n);
    h->n = HLL_DENSE_LEN;
    h->p[ENCODING_AT] = DENSE; /* the rest of the header stays */
    memset(h->p + HLL_HEADER, 0, HLL_DENSE_LEN - HLL_HEADER);
    for (u32 reg = 0; reg < HLL_REGISTERS; reg++)
        if (ranks[reg]) hll_dense_set(h->p, reg, ranks[reg]);
    return true;
}

enum hll_raised hll_raise(struct buf *h, u32 sparse_max, u32 reg, u8 rank)
{
    if (!hll_is_dense(buf_bytes(h))) return sparse_raise(h, sparse_max, reg, rank);
    if (hll_dense_get(h->p, reg) >= rank) return HLL_SAME;
    hll_dense_set(h->p, reg, rank);
    return HLL_RAISED;
}

/* -- estimating ------------------------------------------------------------------- */

/* Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog sketches"
 * (arXiv:1702.01284): works on how many registers have each rank. */

static double ertl_tau(double x)
{
    if (x == 0 || x == 1) return 0;
    double y = 1, z = 1 - x, before;
    do {
        x = sqrt(x);
        before = z;
        y *= 0.5;
        z -= (1 - x) * (1 - x) * y;
    } while (before != z);
    return z / 3;
}

static double ertl_sigma(double x)
{
    if (x == 1) return INFINITY;
    double y = 1, z = x, before;
    do {
        x *= x;
        before = z;
        z += x * y;
        y += y;
    } while (before != z);
    return z;
}

static u64 estimate(const u32 histogram[64])
{
    const double alpha = 0.721347520444481703680, m = HLL_REGISTERS;
    double z = m * ertl_tau((m - histogram[RANK_BITS + 1]) / m);
    for (int rank = RANK_BITS; rank >= 1; rank--) {
        z += histogram[rank];
        z *= 0.5;
    }
    z += m * ertl_sigma(histogram[0] / m);
    return (u64)llroundl(alpha * m * m / z);
}

bool hll_count(bytes h, u64 *count)
{
    u32 histogram[64] = {0}, registers = 0;
    if (hll_is_dense(h)) {
        for (u32 reg = 0; reg < HLL_REGISTERS; reg += 4) {
            u32 word = dense_word(h, reg);
            for (u32 i = 0; i < 4; i++) histogram[word >> (6 * i) & 63]++;
        }
    } else {
        for (size_t at = HLL_HEADER; at < h.n;) {
            struct run r = run_at(h, at);
            histogram[r.rank] += r.len;
            registers += r.len;
            at += r.bytes;
        }
        if (registers != HLL_REGISTERS) return false;
    }
    *count = estimate(histogram);
    return true;
}

u64 hll_count_ranks(const u8 ranks[HLL_REGISTERS])
{
    u32 histogram[64] = {0};
    for (u32 i = 0; i < HLL_REGISTERS; i++) histogram[ranks[i]]++;
    return estimate(histogram);
}
