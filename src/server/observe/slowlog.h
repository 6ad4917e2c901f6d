/* The slow log: the last commands that took longer than a threshold. */
#ifndef MAYFLY_SERVER_OBSERVE_SLOWLOG_H
#define MAYFLY_SERVER_OBSERVE_SLOWLOG_H

#include "base/buf.h"

struct slow_entry {
    u64 id;
    i64 time_s, usec;
    u32 argc;
    struct buf *argv; /* at most 32 arguments of at most 128 bytes, as in Redis */
    struct buf peer, name;
    struct slow_entry *older, *newer;
};

struct slowlog {
    struct slow_entry *newest, *oldest;
    u64 next_id, count;
};

void slowlog_add(struct slowlog *l, u64 max_len, i64 time_s, i64 usec, int argc, const bytes *argv,
                 bytes peer, bytes name);
void slowlog_trim(struct slowlog *l, u64 max_len);
void slowlog_clear(struct slowlog *l);

#endif
