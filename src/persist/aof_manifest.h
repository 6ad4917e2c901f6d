/* The manifest of an AOF's folder, which names its files, in Redis 7's format, one line each:
 *
 *   file appendonly.aof.1.base.rdb seq 1 type b
 *
 * the base first (b), then history (h: replaced by a rewrite), then the increments in order (i). Lines that
 * begin with '#' are comments. Ours ends with
 *
 *   #MF:base:<size, 16 hex>:<sum of its end, 16 hex>    (if we have written the base)
 *   #MF:<crc64 of everything before this line, 16 hex>
 *
 * which are verified if present. Redis drops them when it writes the manifest. */
#ifndef MAYFLY_PERSIST_AOF_MANIFEST_H
#define MAYFLY_PERSIST_AOF_MANIFEST_H

#include "base/buf.h"
#include "base/err.h"

enum aof_type { AOF_BASE = 'b', AOF_HISTORY = 'h', AOF_INCREMENT = 'i' };

struct aof_file {
    char *name;
    u64 seq;
    enum aof_type type;
};

struct aof_manifest {
    struct aof_file *v;
    u32 n, cap;
    bool base_known;          /* the next two are set: */
    u64 base_size, base_tail; /* of the base, so that no other file is mistaken for it */
};

#define AOF_TAIL (64u << 10) /* bytes at the base's end that are summed, at most */

u64 aof_tail_sum(bytes tail);
#define AOF_NAME_MAX 255

void aof_manifest_release(struct aof_manifest *m);
void aof_manifest_copy(struct aof_manifest *to,
                       const struct aof_manifest *from); /* `to` was empty */

/* Parses a manifest. False: `error` says what is wrong and where; `m` is then empty. */
NODISCARD bool aof_manifest_parse(struct aof_manifest *m, bytes text, char error[256]);
void aof_manifest_print(const struct aof_manifest *m, struct buf *out);

/* OK; ERR_NOT_FOUND: no manifest; ERR_SYNTAX: as above. */
NODISCARD err aof_manifest_load(struct aof_manifest *m, const char *folder, const char *name,
                                char error[256]);
/* Replaces the file atomically and durably. False: see errno. */
NODISCARD bool aof_manifest_save(const struct aof_manifest *m, const char *folder,
                                 const char *name);

const struct aof_file *aof_manifest_base(const struct aof_manifest *m); /* or NULL */
const struct aof_file *aof_manifest_last(const struct aof_manifest *m); /* the last increment, or NULL */
u32 aof_manifest_count(const struct aof_manifest *m, enum aof_type type);

/* A number that no base, or no increment, has had. */
u64 aof_manifest_next_seq(const struct aof_manifest *m, enum aof_type type);

void aof_manifest_add(struct aof_manifest *m, enum aof_type type, u64 seq, const char *name);
/* Turns the base, and every increment but `keep` (0: none), into history. */
void aof_manifest_retire(struct aof_manifest *m, u64 keep);
void aof_manifest_forget(struct aof_manifest *m, const char *name); /* of history */

#endif
