/* CRC-32C (Castagnoli's polynomial), as RocksDB's logs have it. */
#ifndef MAYFLY_BASE_CRC32C_H
#define MAYFLY_BASE_CRC32C_H

#include "base/bytes.h"

u32 crc32c(bytes data);

#endif
