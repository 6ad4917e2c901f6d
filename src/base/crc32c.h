/* CRC-32C (Castagnoli), the checksum in RocksDB's logs. */
#ifndef MAYFLY_BASE_CRC32C_H
#define MAYFLY_BASE_CRC32C_H

#include "base/bytes.h"

u32 crc32c(bytes data);

#endif
