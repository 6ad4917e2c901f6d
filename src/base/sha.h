/* What SHA-1 and SHA-256 have in common: blocks of 64 bytes, of 32-bit words with the high byte first. */
#ifndef MAYFLY_BASE_SHA_H
#define MAYFLY_BASE_SHA_H

#include "base/bytes.h"

#define SHA_BLOCK 64

/* The 16 words of a block. */
void sha_words(const u8 *block, u32 w[16]);

/* Adds `data`, and the padding behind it, to the n words of h, which then are the digest. */
void sha_digest(bytes data, void (*add_block)(u32 *h, const u8 *block), u32 *h, int n, u8 *out);

#endif
