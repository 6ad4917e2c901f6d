/* Little-endian integers: messages between nodes, Raft's entries. Keys in RocksDB are big-endian, so that
 * they sort by number (engine/rocks/codec.h). */
#ifndef MAYFLY_BASE_ENDIAN_H
#define MAYFLY_BASE_ENDIAN_H

#include <endian.h>
#include <string.h>

#include "base/buf.h"

/* clang-format off */
static inline void put_le32(void *p, u32 v) { v = htole32(v); memcpy(p, &v, 4); }
static inline void put_le64(void *p, u64 v) { v = htole64(v); memcpy(p, &v, 8); }
static inline u32 get_le32(const void *p) { u32 v; memcpy(&v, p, 4); return le32toh(v); }
static inline u64 get_le64(const void *p) { u64 v; memcpy(&v, p, 8); return le64toh(v); }
static inline void append_le64(struct buf *b, u64 v) { put_le64(buf_reserve(b, 8), v); b->n += 8; }
/* clang-format on */

#endif
