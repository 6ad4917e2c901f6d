/* Shared by SHA-1 and SHA-256: 64-byte blocks of big-endian 32-bit words, and the padding. */
#ifndef MAYFLY_BASE_SHA_H
#define MAYFLY_BASE_SHA_H

#include "base/bytes.h"

#define SHA_BLOCK 64

/* Loads the 16 words of a block. */
void sha_words(const u8 *block, u32 w[16]);

/* Hashes `data` and the padding into the n words of h, and writes them to `out` as the digest. */
void sha_digest(bytes data, void (*add_block)(u32 *h, const u8 *block), u32 *h, int n, u8 *out);

#endif
