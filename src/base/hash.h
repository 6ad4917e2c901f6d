/* A fast keyed 64-bit hash of bytes (multiply-and-fold). The seed is random per process, so that clients
 * cannot prepare colliding keys. Never stored on disk. */
#ifndef MAYFLY_BASE_HASH_H
#define MAYFLY_BASE_HASH_H

#include "base/bytes.h"

static inline u64 hash_fold(u64 a, u64 b)
{
    unsigned __int128 m = (unsigned __int128)a * b;
    return (u64)m ^ (u64)(m >> 64);
}

static inline u64 hash_load8(const char *p)
{
    u64 v;
    memcpy(&v, p, 8);
    return v;
}

static inline u64 hash_load4(const char *p)
{
    u32 v;
    memcpy(&v, p, 4);
    return v;
}

u64 hash_long(bytes s, u64 seed); /* more than 16 bytes */

static inline u64 hash_bytes(bytes s, u64 seed)
{
    const u64 k0 = 0x9e3779b97f4a7c15ULL, k1 = 0xd6e8feb86659fd93ULL;
    u64 a, b;
    if (LIKELY(s.n <= 16)) {
        if (s.n >= 8) {
            a = hash_load8(s.p);
            b = hash_load8(s.p + s.n - 8);
        } else if (s.n >= 4) {
            a = hash_load4(s.p);
            b = hash_load4(s.p + s.n - 4);
        } else if (s.n > 0) {
            a = (u64)(u8)s.p[0] << 16 | (u64)(u8)s.p[s.n >> 1] << 8 | (u8)s.p[s.n - 1];
            b = 0;
        } else {
            a = b = 0;
        }
    } else {
        a = hash_long(s, seed);
        b = hash_load8(s.p + s.n - 8);
    }
    return hash_fold(k0 ^ s.n ^ seed, hash_fold(a ^ k0 ^ seed, b ^ k1 ^ (seed << 1 | 1)) ^ k1);
}

#endif
