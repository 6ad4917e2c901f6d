/* SHA-256: how passwords are kept. */
#ifndef MAYFLY_BASE_SHA256_H
#define MAYFLY_BASE_SHA256_H

#include "base/bytes.h"

#define SHA256_BYTES 32

void sha256(bytes data, u8 out[SHA256_BYTES]);

/* Takes the same time wherever the first difference is. */
bool sha256_same(const u8 a[SHA256_BYTES], const u8 b[SHA256_BYTES]);

#endif
