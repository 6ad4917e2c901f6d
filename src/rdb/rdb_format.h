/* Constants of Redis's RDB format. A file is
 *
 *   "REDIS" · version, four digits · (opcode … | [attributes] type · key · value) … · EOF · checksum
 *
 * and a DUMP payload is  type · value · u16 version · u64 checksum. Versions by Redis release:
 *
 *   version 5 (2.6) … 7 (3.2: quicklists, AUX) · 8 (4.0: binary scores, modules) · 9 (5.0: streams)
 *   10 (7.0: listpacks, functions) · 11 (7.2: sets as listpacks) · 12 (7.4: field deadlines) */
#ifndef MAYFLY_RDB_RDB_FORMAT_H
#define MAYFLY_RDB_RDB_FORMAT_H

#include "base/types.h"

#define RDB_VERSION_MAX 12  /* the newest we read; written if field deadlines are to be kept natively */
#define RDB_VERSION_PLAIN 10 /* redis-server 7.0 reads it; enough for all but field deadlines */

enum rdb_type {
    RDB_STRING = 0,
    RDB_LIST = 1,
    RDB_SET = 2,
    RDB_ZSET = 3, /* scores as text */
    RDB_HASH = 4,
    RDB_ZSET_2 = 5, /* scores as eight bytes */
    RDB_MODULE_1 = 6,
    RDB_MODULE_2 = 7,
    RDB_HASH_ZIPMAP = 9,
    RDB_LIST_ZIPLIST = 10,
    RDB_SET_INTSET = 11,
    RDB_ZSET_ZIPLIST = 12,
    RDB_HASH_ZIPLIST = 13,
    RDB_QUICKLIST = 14, /* of ziplists */
    RDB_STREAM = 15,
    RDB_HASH_LISTPACK = 16,
    RDB_ZSET_LISTPACK = 17,
    RDB_QUICKLIST_2 = 18, /* of listpacks and plain elements */
    RDB_STREAM_2 = 19,
    RDB_SET_LISTPACK = 20,
    RDB_STREAM_3 = 21,
    RDB_HASH_TTL_EARLY = 22,          /* of 7.4's release candidates */
    RDB_HASH_LISTPACK_TTL_EARLY = 23, /* likewise */
    RDB_HASH_TTL = 24,
    RDB_HASH_LISTPACK_TTL = 25,
};

enum rdb_opcode {
    RDB_OP_SLOT_INFO = 244,
    RDB_OP_FUNCTION = 245,
    RDB_OP_FUNCTION_EARLY = 246, /* of 7.0's release candidates */
    RDB_OP_MODULE_AUX = 247,
    RDB_OP_IDLE = 248,
    RDB_OP_FREQ = 249,
    RDB_OP_AUX = 250,
    RDB_OP_RESIZEDB = 251,
    RDB_OP_EXPIRETIME_MS = 252,
    RDB_OP_EXPIRETIME = 253,
    RDB_OP_SELECTDB = 254,
    RDB_OP_EOF = 255,
};

/* Top two bits of a length's first byte. */
enum { RDB_LEN_6 = 0, RDB_LEN_14 = 1, RDB_LEN_LONG = 2, RDB_LEN_ENCODED = 3 };
enum { RDB_LEN_32 = 0x80, RDB_LEN_64 = 0x81 };

/* An encoded length is not a length: it says how the string that follows is encoded. */
enum { RDB_ENC_INT8 = 0, RDB_ENC_INT16 = 1, RDB_ENC_INT32 = 2, RDB_ENC_LZF = 3 };

enum { RDB_NODE_PLAIN = 1, RDB_NODE_PACKED = 2 }; /* of RDB_QUICKLIST_2 */

/* Parts of a module's value. */
enum {
    RDB_MODULE_EOF,
    RDB_MODULE_SINT,
    RDB_MODULE_UINT,
    RDB_MODULE_FLOAT,
    RDB_MODULE_DOUBLE,
    RDB_MODULE_STRING
};

/* The AUX field in which a file of version 10 keeps the field deadlines of the preceding hash: a listpack of
 * (field, Unix time in ms). Redis ignores AUX fields it does not know. A large hash has several. */
#define RDB_AUX_FIELD_TTL "mayfly-field-ttl"

/* The state of a site, and the metadata of each key after it (exec/site_log.h), likewise. */
#define RDB_AUX_SITE "mayfly-site"

#endif
