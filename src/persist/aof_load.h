/* Loading the files of a manifest: the base, then the increments, each verified as far as possible.
 *
 * If the last file ends in the middle of something it is torn: that is what a crash does, and
 * aof-load-truncated decides. Everything else that is wrong is damage, and refused. */
#ifndef MAYFLY_PERSIST_AOF_LOAD_H
#define MAYFLY_PERSIST_AOF_LOAD_H

#include "persist/aof.h"
#include "persist/aof_manifest.h"
#include "persist/aof_read.h"
#include "persist/aof_replay.h"
#include "persist/rdb_file.h"

struct aof_loader {
    const struct aof_options *o;
    const char *folder;
    const struct aof_manifest *m;
    struct aof_replay replay;

    /* the file being read */
    const struct aof_file *file; /* NULL: open the next one */
    struct aof_reader in;
    u64 offset; /* everything before it has been loaded */
    enum { AOF_READ_RDB, AOF_READ_BLOCKS, AOF_READ_COMMANDS } form;
    size_t want; /* window size: a long command needs more */
    u64 chain;   /* after the last block; 0: the file has, or ends with, no checksums */
    i64 began_us;
    struct rdb_loader *rdb;
    struct rdb_source source;
    u64 rdb_read;

    /* for progress, and for what comes after */
    u32 next;          /* files done */
    bool before_known; /* an increment was loaded, and this is its chain: */
    u64 before;
    u64 loaded, total; /* bytes */
    u64 base_size, last_size;
    bool appendable; /* the last increment is ours to its end */
    bool unchecked;  /* a file of ours holds commands without checksums */
};

/* All arguments are borrowed. False: the log says which file is missing. */
NODISCARD bool aof_loader_init(struct aof_loader *l, const struct aof_options *o,
                               const char *folder, const struct aof_manifest *m);
void aof_loader_release(struct aof_loader *l);

NODISCARD err aof_loader_step(struct aof_loader *l, struct region *r, struct server *server,
                              u64 budget);

#endif
