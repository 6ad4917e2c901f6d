#include "base/hash.h"

/* Folds all but the last eight bytes, which hash_bytes adds. */
u64 hash_long(bytes s, u64 seed)
{
    const u64 k2 = 0xa0761d6478bd642fULL, k3 = 0xe7037ed1a0b428dbULL;
    u64 h = seed ^ k2;
    const char *p = s.p, *end = s.p + s.n - 8; /* s.n > 16, so end - 8 lies inside */
    for (; p + 16 <= end; p += 16) h = hash_fold(hash_load8(p) ^ k2 ^ h, hash_load8(p + 8) ^ k3);
    if (p < end) {
        u64 head = end - p > 8 ? hash_load8(p) : 0;
        h = hash_fold(head ^ k3 ^ h, hash_load8(end - 8) ^ k2);
    }
    return h;
}
