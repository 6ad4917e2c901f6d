/* CRC-64/Jones, the checksum at the end of RDB files and DUMP payloads. */
#ifndef MAYFLY_BASE_CRC64_H
#define MAYFLY_BASE_CRC64_H

#include "base/bytes.h"

/* Continues the checksum `crc` over `data`. Start with 0. */
u64 crc64(u64 crc, bytes data);

#endif
