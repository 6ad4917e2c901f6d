/* Loading the files that a manifest names: the base, then the increments, each verified as far as it can be.
 *
 * A file that ends in the middle of something is torn, if it is the last one: a crash does that, and
 * aof-load-truncated says what then. Everything else that is wrong is damage, and refused. */
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
    const struct aof_file *file; /* NULL: the next one is to be opened */
    struct aof_reader in;
    u64 offset; /* everything before it has been loaded */
    enum { AOF_READ_RDB, AOF_READ_BLOCKS, AOF_READ_COMMANDS } form;
    size_t want; /* bytes to look at together: a long command needs many */
    u64 chain;   /* with the last block; 0: the file is, or ends, without checksums */
    i64 began_us;
    struct rdb_loader *rdb;
    struct rdb_source source;
    u64 rdb_read;

    /* for progress, and for what comes after */
    u32 next;          /* how many files are done */
    bool before_known; /* an increment was loaded, and this is its chain: */
    u64 before;
    u64 loaded, total; /* bytes */
    u64 base_size, last_size;
    bool appendable; /* the last increment is ours to its end */
    bool unchecked;  /* commands without checksums were found in a file of ours */
};

/* All is borrowed. False: the log says which file is missing. */
NODISCARD bool aof_loader_init(struct aof_loader *l, const struct aof_options *o,
                               const char *folder, const struct aof_manifest *m);
void aof_loader_release(struct aof_loader *l);

NODISCARD err aof_loader_step(struct aof_loader *l, struct region *r, struct server *server,
                              u64 budget);

#endif
