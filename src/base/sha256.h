/* SHA-256: for stored passwords. */
#ifndef MAYFLY_BASE_SHA256_H
#define MAYFLY_BASE_SHA256_H

#include "base/bytes.h"

#define SHA256_BYTES 32

void sha256(bytes data, u8 out[SHA256_BYTES]);

/* Compares in constant time. */
bool sha256_same(const u8 a[SHA256_BYTES], const u8 b[SHA256_BYTES]);

#endif
