/* Commands of a file into a region: parsed in place, fetched ahead in batches, and run. */
#ifndef MAYFLY_PERSIST_AOF_REPLAY_H
#define MAYFLY_PERSIST_AOF_REPLAY_H

#include "exec/region.h"

#define AOF_BATCH 16

struct aof_replay {
    struct region *region;
    struct server *server;
    bool verified; /* by a checksum: a command that fails here failed when it was first run, half done */
    struct session session;
    u64 commands;
    u64 failures;    /* of verified commands; `error` tells of the last */
    char error[512]; /* what is wrong */
    bool malformed;  /* namely, that it is no command at all */
    /* own */
    struct buf args, ignored;
    struct {
        size_t from;     /* its place in the input */
        u32 first, argc; /* its arguments among args */
    } batch[AOF_BATCH];
    u32 n;
    bool in_group;
};

void aof_replay_init(struct aof_replay *p);
void aof_replay_release(struct aof_replay *p);

/* Runs the commands in `in`, in the open transaction, up to *used. OK: all of them. ERR_AGAIN: the last one
 * is not all there, or not all of the MULTI … EXEC that it is in, of which then nothing was run.
 * ERR_SYNTAX: at *used is something that is no command, or can't be run. */
NODISCARD err aof_replay_run(struct aof_replay *p, bytes in, size_t *used);

#endif
