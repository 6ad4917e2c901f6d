/* Runs the commands of a file in a region: parsed in place, prefetched in batches. */
#ifndef MAYFLY_PERSIST_AOF_REPLAY_H
#define MAYFLY_PERSIST_AOF_REPLAY_H

#include "exec/region.h"

#define AOF_BATCH 16

struct aof_replay {
    struct region *region;
    struct server *server;
    bool verified; /* by a checksum: a command that fails here also failed, half done, when it first ran */
    struct session session;
    u64 commands;
    u64 failures;    /* of verified commands; `error` describes the last */
    char error[512]; /* what is wrong */
    bool malformed;  /* … because it is not a command at all */
    /* private */
    struct buf args, ignored;
    struct {
        size_t from;     /* offset in the input */
        u32 first, argc; /* its arguments in args */
    } batch[AOF_BATCH];
    u32 n;
    bool in_group;
};

void aof_replay_init(struct aof_replay *p);
void aof_replay_release(struct aof_replay *p);

/* Runs the commands in `in`, in the open transaction, up to *used. OK: all of them. ERR_AGAIN: the last one,
 * or its MULTI … EXEC group, is incomplete, and nothing of it was run. ERR_SYNTAX: at *used is something that
 * is not a command or can't be run. */
NODISCARD err aof_replay_run(struct aof_replay *p, bytes in, size_t *used);

#endif
