/* The keyspace: the one gate between commands and the engine. It hides dead
 * keys from every command, deletes them on access where the mode says so,
 * counts hits and misses, keeps the access clock, and reports changes.
 *
 * Nothing here reads a clock: now_ms is set by the loop for the whole tick. */
#ifndef MAYFLY_KEYSPACE_KEYSPACE_H
#define MAYFLY_KEYSPACE_KEYSPACE_H

#include "base/alloc.h"
#include "engine/engine.h"
#include "journal/journal.h"
#include "keyspace/expiry_mode.h"
#include "keyspace/lag.h"

enum maxmemory_policy { /* bit 0: LFU, bit 1: LRU, bit 2: ttl, bit 3: random, bit 4: all keys */
    EVICT_NONE = 0,
    EVICT_VOLATILE_LFU = 1,
    EVICT_VOLATILE_LRU = 2,
    EVICT_VOLATILE_TTL = 4,
    EVICT_VOLATILE_RANDOM = 8,
    EVICT_ALLKEYS_LFU = 1 | 16,
    EVICT_ALLKEYS_LRU = 2 | 16,
    EVICT_ALLKEYS_RANDOM = 8 | 16,
};

/* Classes of keyspace events, as notify-keyspace-events names them. */
enum {
    NOTIFY_GENERIC = 1 << 2, /* g */
    NOTIFY_STRING = 1 << 3,  /* $ */
    NOTIFY_LIST = 1 << 4,    /* l */
    NOTIFY_SET = 1 << 5,     /* s */
    NOTIFY_HASH = 1 << 6,    /* h */
    NOTIFY_ZSET = 1 << 7,    /* z */
    NOTIFY_EXPIRED = 1 << 8, /* x */
    NOTIFY_EVICTED = 1 << 9, /* e */
    NOTIFY_STREAM = 1 << 10, /* t */
    NOTIFY_MISS = 1 << 11,   /* m */
    NOTIFY_NEW = 1 << 14,    /* n */
};

struct keyspace_stats {
    u64 hits, misses;
    u64 expired_keys, expired_fields, evicted_keys;
    u64 lazy_expired; /* of expired_keys: deleted by a command that found them dead */
};

/* Called for every change, independent of event classes: for WATCH, blocked clients and client-side caching.
 * The callbacks must not change data. */
struct keyspace_watcher {
    void (*changed)(void *arg, u32 db, bytes key);   /* its value, its deadline or its existence */
    void (*flushing)(void *arg, u32 db);             /* a database is about to be emptied */
    void (*swapped)(void *arg, u32 a, u32 b);        /* two databases were swapped */
};

struct keyspace {
    struct engine *eng;
    struct journal *journal;
    struct keyspace *next; /* ring of those that the running command is about; itself: only this one */
    u32 first_slot; /* of its region, in cluster mode */
    i64 now_ms;
    i64 dead_by_ms; /* keys with an earlier deadline are dead: now_ms, or 0 if the mode hides nothing */
    i64 found_dead_ms; /* the latest deadline of anything found dead since keyspace_begin; 0: nothing was */
    u64 dirty; /* changes by commands since start: the unit of `save` points */

    bool no_touch;          /* the running client does not update the access clock */
    bool only_reads;        /* the running command creates no key where it found none */
    enum expiry_mode mode;  /* of the open transaction … */
    bool reads_delete;      /* … in which a command that only reads deletes dead keys, too */
    bool deletes_dead;      /* the running command, or the tick, deletes dead keys it finds */
    u32 lfu_log_factor, lfu_decay_minutes;
    enum maxmemory_policy policy;
    bool limited;           /* maxmemory is set */
    u64 access_rng;         /* for the LFU counter; the data does not depend on it */

    u32 one_database;       /* a cluster has database 0 only, of so many configured; 0: no cluster */
    bool one_slot;          /* … and the keys of a request are in one slot */
    u64 max_string;         /* proto-max-bulk-len: no string grows beyond it */
    bool compress;          /* rdbcompression: also for strings in DUMP */
    bool skip_checksums;    /* DEBUG SET-SKIP-CHECKSUM-VALIDATION */
    u32 hll_sparse_max;     /* hll-sparse-max-bytes */
    u64 stream_node_max_bytes, stream_node_max_entries; /* by these names; 0: no limit */

    struct keyspace_stats stats;
    struct expiry_lag *lag; /* of the node; NULL: not measured */
    u64 run_lag_ms;         /* the longest lag of a key that the cycle has deleted since its run began */

    const struct keyspace_watcher *watcher; /* NULL: none */
    void *watcher_arg;

    /* Receives keyspace events (pub/sub); may be NULL. */
    void (*on_event)(void *arg, u32 class, const char *event, u32 db, bytes key);
    void *on_event_arg;
    u32 event_mask; /* event classes passed to on_event */

    /* Reports an expired key, or one expired field of a hash (command/expiry_stream.h). Must not change data;
     * may be NULL. */
    void (*on_expired)(void *arg, const struct key_ref *ref, const bytes *field, i64 deadline_ms);
    void *on_expired_arg;
};

/* What another keyspace has counted, which ceases to be, counts as this one's. */
void keyspace_add_stats(struct keyspace *ks, const struct keyspace *of);

/* Runs what follows for a keyspace and all others of its node: struct keyspace *ks;
 * KEYSPACES_EACH(c->ks, ks) … */
#define KEYSPACES_EACH(own, ks) for ((ks) = (own); (ks); (ks) = (ks)->next == (own) ? NULL : (ks)->next)

void keyspace_init(struct keyspace *ks, struct engine *eng, struct journal *journal);

/* Starts a tick: sets the time of all its commands and begins the engine's transaction. Relative deadlines
 * and the access clock count from now_ms, even if the mode hides nothing. */
void keyspace_begin(struct keyspace *ks, i64 now_ms, enum expiry_mode mode);

/* Changes the mode of the open transaction to another one with the same clock. */
static inline void keyspace_set_mode(struct keyspace *ks, enum expiry_mode mode)
{
    ks->mode = mode;
    ks->reads_delete = expiry_reads_delete(mode, ks->eng->caps.reads_only);
    ks->deletes_dead = mode == EXPIRY_ACTIVE;
}

enum lookup_intent {
    LOOKUP_READ,   /* counts a hit or a miss, updates the access clock */
    LOOKUP_WRITE,  /* updates the access clock */
    LOOKUP_PEEK,   /* counts, but does not update the access clock: TTL, TYPE, OBJECT … */
    LOOKUP_INSPECT, /* does neither: MEMORY USAGE, DEBUG */
};

/* The gate. False: absent or dead. Deletes a dead key, and journals the DEL, if the mode says so. After false
 * `ref` can be passed to str.put: entry is NULL, db and hash are set. */
bool keyspace_find(struct keyspace *ks, u32 db, bytes key, enum lookup_intent, struct key_ref *ref);

/* Whether a deadline has passed; one that has is remembered in found_dead_ms. */
static inline bool keyspace_is_dead(struct keyspace *ks, i64 deadline_ms)
{
    if (LIKELY(alive(deadline_ms, ks->dead_by_ms))) return false;
    ks->found_dead_ms = MAX(ks->found_dead_ms, deadline_ms);
    return true;
}

/* Whether all fields of a hash are dead: then it counts as dead, even without a deadline of its own. */
bool keyspace_hash_is_hollow(struct keyspace *ks, struct key_ref *ref);

/* Whether a key found by other means (scan, random) may be shown to a client. */
static inline bool keyspace_visible(struct keyspace *ks, struct key_ref *ref)
{
    if (keyspace_is_dead(ks, ref->deadline_ms)) return false;
    return ref->type != TYPE_HASH || !keyspace_hash_is_hollow(ks, ref);
}

/* Records a change by a command: increments `dirty`, calls the watcher, publishes the event. Call it once per
 * key. */
void keyspace_changed(struct keyspace *ks, u32 db, bytes key, u32 class, const char *event);
void keyspace_notify(struct keyspace *ks, u32 db, bytes key, u32 class, const char *event); /* event only */

/* Records a change not made by a command (expiry, eviction): calls the watcher only. */
void keyspace_touched(struct keyspace *ks, u32 db, bytes key);

/* Empties a database; swaps two. */
void keyspace_flush(struct keyspace *ks, u32 db);
void keyspace_swap(struct keyspace *ks, u32 a, u32 b);

/* Deletes a key whose deadline has passed: journal DEL (unless each member deletes by itself), `expired`
 * event, lag. */
void keyspace_expire(struct keyspace *ks, struct key_ref *ref, bool lazy);

/* All of that but the deletion itself. */
void keyspace_note_expired(struct keyspace *ks, struct key_ref *ref, bool lazy);

/* What follows for one field that is past its deadline, but for the deletion, the effect, and the event. */
void keyspace_note_expired_field(struct keyspace *ks, struct key_ref *ref, bytes field, i64 deadline_ms,
                                 bool lazy);

/* Deletes up to `max` dead fields of a hash: journal HDEL, `hexpired` event. Deletes the hash with its last
 * field. Returns the number of fields deleted. */
u32 keyspace_reap_fields(struct keyspace *ks, struct key_ref *ref, u32 max, bool lazy);

/* A read has found dead fields in this hash: deletes some of them, if reads delete in this mode. */
void keyspace_met_dead_fields(struct keyspace *ks, struct key_ref *ref);

/* Deletes one field if it is dead, before a new value is stored in it. Keeps the hash. */
void keyspace_reap_field(struct keyspace *ks, struct key_ref *ref, bytes field, bool lazy);

/* A command has deleted the last live field of a hash, and dead ones are left: deletes the hash, or leaves it
 * to the cycle like any hollow hash. */
void keyspace_bury_hollow(struct keyspace *ks, struct key_ref *ref);

/* Reclaims a key returned by due(): expires it, or deletes up to max_fields of its dead fields. */
void keyspace_reclaim(struct keyspace *ks, struct key_ref *ref, u32 max_fields);

/* LRU clock and LFU counter in the 24 access bits. */
u32 access_new(const struct keyspace *ks);                /* for a new key */
u64 access_idle_ms(const struct keyspace *ks, u32 bits);  /* LRU: time since the last access */
u32 access_frequency(const struct keyspace *ks, u32 bits);/* LFU: the decayed counter */
u32 access_lfu_bits(const struct keyspace *ks, u32 counter); /* for RESTORE FREQ and tests */

/* Sets the idle time or the frequency of a restored key, whichever the policy uses; -1: unknown. */
void access_restore(struct keyspace *ks, struct key_ref *ref, i64 idle_s, i64 frequency);

#endif
