/* The log of one Raft group, as one member keeps it: an interface with two implementations, RocksDB for the
 * server and a simulated disk that forgets (tests/sim).
 *
 *        compacted              kept
 *     1 … point_index | point_index + 1 … last_index
 *
 * Beside the entries a log holds the hard state and the compaction point: index and term of the entry
 * before the first one kept.
 *
 * Durability. write() returns at once. Writes have numbers, each greater than the one before. They take
 * effect in that order: after a crash the log is as some prefix of the writes left it, and each write is
 * complete or absent. The owner calls group_durable(g, n) when every write up to n would survive a crash. A
 * write with `sync` false needs no fsync of its own. A write or fsync that fails ends the process: the state
 * of the log is unknown then.
 *
 * Reading. read() and term_of() serve entries that are durable; entries that are not are never asked for. */
#ifndef MAYFLY_RAFT_RAFT_LOG_H
#define MAYFLY_RAFT_RAFT_LOG_H

#include "base/types.h"
#include "raft/raft_core.h"

struct raft_log_state {
    struct raft_hard_state hard_state;
    u64 point_index, point_term, last_index;
};

/* One write, in this order: reset, entries, hard state. */
struct raft_log_write {
    u64 number;
    bool sync;
    bool reset; /* a snapshot replaced everything: no entries, the compaction point is this */
    u64 reset_index, reset_term;
    const struct raft_entry *entries; /* consecutive; entries[0].index and everything after it is replaced */
    size_t entries_n;
    const struct raft_hard_state *hard_state; /* NULL: unchanged */
};

struct raft_log;

struct raft_log_ops {
    void (*load)(struct raft_log *log, struct raft_log_state *state);
    void (*write)(struct raft_log *log, const struct raft_log_write *w); /* copies what it needs */
    bool (*read)(struct raft_log *log, u64 low, u64 high, u64 bytes_max, struct raft_core_sink *sink);
    u64 (*term_of)(struct raft_log *log, u64 index); /* point_index has one, too; 0: not there */
    /* Forgets entries up to index, whose term is given. Takes effect in the order of writes, whenever it
     * likes. */
    void (*compact)(struct raft_log *log, u64 index, u64 term);
};

/* The first member of an implementation's struct. */
struct raft_log {
    const struct raft_log_ops *ops;
};

#endif
