/* Error messages about a file; and its torn end, which may be cut off. */
#ifndef MAYFLY_PERSIST_AOF_TORN_H
#define MAYFLY_PERSIST_AOF_TORN_H

#include "persist/aof_load.h"

void aof_loader_path(const struct aof_loader *l, const struct aof_file *file, char path[4096]);

/* The files in order: the base, then the increments; NULL: no more. */
const struct aof_file *aof_loader_file(const struct aof_manifest *m, u32 at);

/* Logged with the offset. All of them return ERR_SYNTAX. */
err aof_refuse(struct aof_loader *l, u64 offset, const char *fmt, ...) PRINTF_LIKE(3, 4);
err aof_refuse_damage(struct aof_loader *l, u64 offset, const char *what); /* with advice */
err aof_refuse_read(struct aof_loader *l);

/* The data at the offset is incomplete. OK: it was the last file, and its end was cut off. */
NODISCARD err aof_torn(struct aof_loader *l, u64 offset);

#endif
