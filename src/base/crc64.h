/* CRC-64 with Jones's polynomial, as it ends Redis's RDB files and DUMP payloads. */
#ifndef MAYFLY_BASE_CRC64_H
#define MAYFLY_BASE_CRC64_H

#include "base/bytes.h"

/* The checksum of what `crc` stands for, followed by `data`. Starts from 0. */
u64 crc64(u64 crc, bytes data);

#endif
