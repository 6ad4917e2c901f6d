/* What the entries of a region's log contain. Fixed header, little-endian, then the payload:
 *
 *     0        1      2          4               8           12         20
 *     | format | kind | zero (2) | epoch version | conf_ver  | stamp_ms | payload …
 *
 * The epoch is the region's when the entry was proposed; an entry whose version is not the region's when it
 * is applied is void. The stamp is the time the entry happened at: it never decreases along the log. */
#ifndef MAYFLY_RAFT_COMMAND_H
#define MAYFLY_RAFT_COMMAND_H

#include "base/buf.h"
#include "base/err.h"

enum { RAFT_COMMAND_FORMAT = 1, RAFT_COMMAND_HEADER = 20 };

enum raft_kind {
    RAFT_KIND_EFFECTS = 1, /* journal records */
    RAFT_KIND_CLOCK = 2,   /* nothing but its stamp */
    RAFT_KIND_SPLIT = 3,   /* 3 to 6 start a new epoch version */
    RAFT_KIND_MERGE_PREPARE = 4,
    RAFT_KIND_MERGE_COMMIT = 5,
    RAFT_KIND_MERGE_ROLLBACK = 6,
    RAFT_KIND_TRUNCATE = 7,
    RAFT_KIND_DIGEST = 8,
    RAFT_KIND_NODE = 9,    /* where a node is reached */
    RAFT_KIND_DEATHS = 10, /* a byte: whether deaths are entries from here on (raft_applied.deaths_from_ms) */
    RAFT_KIND_REGIONS = 11, /* lines of regions: cluster_map.h; in the log of region 0 */
    RAFT_KIND_MAX = 11
};

struct raft_epoch {
    u32 version;  /* grows with split and merge */
    u32 conf_ver; /* grows with every change of members */
};

/* The slots of a region, both inclusive. */
struct raft_slots {
    u16 first, last;
};
#define RAFT_SLOTS 16384

struct raft_command {
    enum raft_kind kind;
    struct raft_epoch epoch;
    u64 stamp_ms;
    bytes payload;
};

void raft_command_encode(struct buf *out, const struct raft_command *c);
/* The payload points into `data`. ERR_SYNTAX: damaged, or of a later version of this program. */
err raft_command_decode(bytes data, struct raft_command *c);

static inline bool raft_kind_starts_epoch(enum raft_kind kind)
{
    return kind >= RAFT_KIND_SPLIT && kind <= RAFT_KIND_MERGE_ROLLBACK;
}

#endif
