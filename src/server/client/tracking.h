/* Client-side caching: CLIENT TRACKING.
 *
 * A client that tracks gets an invalidation when a key it has read is changed, expires or is evicted, once
 * per read; or (BCAST) when any key with one of its prefixes is, at the end of the tick. Only names of keys
 * count, not their database. An invalidation too many costs one more read; one too few leaves a stale value.
 * So where it can't be exact (too many keys, a commit that failed), too much is invalidated rather than too
 * little.
 *
 * While no client tracks, the keyspace reports nothing here (LISTEN_TRACK). */
#ifndef MAYFLY_SERVER_CLIENT_TRACKING_H
#define MAYFLY_SERVER_CLIENT_TRACKING_H

#include "base/buf.h"
#include "ds/table.h"

struct server;
struct conn;
struct request;
struct outcome;

enum { TRACK_BCAST = 1, TRACK_OPTIN = 2, TRACK_OPTOUT = 4, TRACK_NOLOOP = 8 };

/* The lengths of prefixes: a changed key is looked up once for each of them. */
struct prefix_length {
    size_t n;
    u64 prefixes; /* prefixes of this length */
};

struct tracking {
    struct table clients;    /* struct tracker, by client id */
    struct table keys;       /* struct tracked, by name: keys that clients have read */
    struct table old_keys;   /* its former contents after all was invalidated, being freed */
    u64 items;               /* clients of all `keys` together */
    struct table prefixes;   /* struct prefix: of BCAST clients */
    struct prefix_length *lengths;
    u32 length_count;
    struct prefix *changed;  /* prefixes with changed keys, to be sent at the end of the tick */
    struct buf pending;      /* keys for the client that the running one redirects to: sent after its reply */
    bool flushed;            /* the running command flushed, and all were notified: once for all databases */
    bool distrusted;         /* all keys are invalid: to be sent at the end of the tick */
    u32 rounds_over;         /* how often in a row tracking_cron found too many keys */
    u64 rng;
};

/* A client that tracks. */
struct tracker {
    u64 id;
    struct conn *conn;
    u32 options;             /* TRACK_* */
    bool caching;            /* CLIENT CACHING applies to the next command */
    bool broken;             /* the client it redirects to is gone */
    u64 redirect;            /* id of the client that is notified instead; 0: none … */
    struct conn *target;     /* … while it exists … */
    struct tracker *prev, *next; /* … in the list of those that redirect to it */
    struct prefix_member **prefixes; /* its prefixes (BCAST) */
    u32 prefix_count;
    size_t prefix_bytes;
};

void tracking_init(struct server *s, u64 seed);
void tracking_release(struct server *s);

/* A connection is closed, or RESET: it no longer tracks, and is no target. */
void tracking_forget(struct server *s, struct conn *c);

/* -- from the tick ----------------------------------------------------------------------------------- */

static inline bool tracking_used(const struct tracking *t) { return t->clients.count || t->old_keys.count; }

/* Before a command runs, and from time to time: keeps the table within tracking-table-max-keys. */
void tracking_before(struct server *s);
void tracking_cron(struct server *s);

/* A command of this client has run: remembers the keys it has read. Nested: within EXEC or a script. */
void tracking_after(struct server *s, struct conn *c, const struct request *q, const struct outcome *o);
void tracking_nested(struct server *s, struct conn *c, const struct request *q, const struct outcome *o);

/* Invalidations may be taken back, and the table is dropped: no cached value can be relied on. */
void tracking_distrust(struct server *s);

/* Sends what is sent once per tick. */
void tracking_end_tick(struct server *s);

/* -- for CLIENT (tracking_cmd.c) --------------------------------------------------------------------- */

struct tracker *tracking_on(struct server *s, struct conn *c, u32 options, struct conn *target);
void tracking_off(struct server *s, struct conn *c);
void tracking_add_prefix(struct tracking *g, struct tracker *t, bytes prefix); /* unless it has it */
bytes tracking_prefix(const struct tracker *t, u32 i);

/* For CLIENT LIST: flags ("tRB"), and the client it redirects to (-1: it does not track). */
size_t tracking_flags(const struct conn *c, char *out);
long long tracking_redirect(const struct conn *c);

#endif
