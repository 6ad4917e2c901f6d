/* SHA-1, where Redis requires it: script names, DEBUG DIGEST. Not for secrets. */
#ifndef MAYFLY_BASE_SHA1_H
#define MAYFLY_BASE_SHA1_H

#include "base/bytes.h"

#define SHA1_BYTES 20

void sha1(bytes data, u8 out[SHA1_BYTES]);

/* 40 lower-case hex digits and a NUL. */
void sha1_hex(const u8 digest[SHA1_BYTES], char out[2 * SHA1_BYTES + 1]);

#endif
