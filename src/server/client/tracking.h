/* Client-side caching: CLIENT TRACKING.
 *
 * A client that tracks is told when a key it has read is changed, expires or is evicted, once per read; or
 * (BCAST) when any key with one of its prefixes is, at the end of the tick. Names of keys are all that
 * counts, not their database. Whoever hears of too much asks once more than needed: so, where it can't be
 * exact (too many keys, a commit that failed), too much is declared invalid rather than too little.
 *
 * While nobody tracks, the keyspace reports nothing here (LISTEN_TRACK). */
#ifndef MAYFLY_SERVER_CLIENT_TRACKING_H
#define MAYFLY_SERVER_CLIENT_TRACKING_H

#include "base/buf.h"
#include "ds/table.h"

struct server;
struct conn;
struct request;
struct outcome;

enum { TRACK_BCAST = 1, TRACK_OPTIN = 2, TRACK_OPTOUT = 4, TRACK_NOLOOP = 8 };

/* The lengths prefixes have: a changed key is looked up once for each of them. */
struct prefix_length {
    size_t n;
    u64 prefixes; /* that are so long */
};

struct tracking {
    struct table clients;    /* struct tracker, by number of the client */
    struct table keys;       /* struct tracked: what somebody has read, by name */
    struct table old_keys;   /* what was in there before all was invalidated, and is being freed */
    u64 items;               /* clients of all `keys` together */
    struct table prefixes;   /* struct prefix: of those who BCAST */
    struct prefix_length *lengths;
    u32 length_count;
    struct prefix *changed;  /* those with changed keys, to be told at the end of the tick */
    struct buf pending;      /* names of keys for one whom the running client redirects to: when it is done */
    bool flushed;            /* by the running command, and all were told so: once for all databases */
    bool distrusted;         /* all keys are invalid, which is to be told at the end of the tick */
    u32 rounds_over;         /* how often in a row tracking_cron found too many keys */
    u64 rng;
};

/* One client that tracks. */
struct tracker {
    u64 id;
    struct conn *conn;
    u32 options;             /* TRACK_* */
    bool caching;            /* CLIENT CACHING was said for what comes next */
    bool broken;             /* the client it redirects to has gone */
    u64 redirect;            /* number of the client that is told instead; 0: none … */
    struct conn *target;     /* … as long as it is there … */
    struct tracker *prev, *next; /* … among all that redirect to it */
    struct prefix_member **prefixes; /* what it is told of, if it is told of prefixes (BCAST) */
    u32 prefix_count;
    size_t prefix_bytes;
};

void tracking_init(struct server *s, u64 seed);
void tracking_release(struct server *s);

/* A connection goes, or RESET: it tracks no more, and is no target. */
void tracking_forget(struct server *s, struct conn *c);

/* -- from the tick ----------------------------------------------------------------------------------- */

static inline bool tracking_used(const struct tracking *t) { return t->clients.count || t->old_keys.count; }

/* Before a command runs, and from time to time: keep the table within tracking-table-max-keys. */
void tracking_before(struct server *s);
void tracking_cron(struct server *s);

/* A command of this client has run: what it has read is remembered. Nested: within EXEC or a script. */
void tracking_after(struct server *s, struct conn *c, const struct request *q, const struct outcome *o);
void tracking_nested(struct server *s, struct conn *c, const struct request *q, const struct outcome *o);

/* What was told may be taken back, and what is tracked is forgotten: no cache is to be relied on. */
void tracking_distrust(struct server *s);

/* Tells of what is told once per tick. */
void tracking_end_tick(struct server *s);

/* -- for CLIENT (tracking_cmd.c) --------------------------------------------------------------------- */

struct tracker *tracking_on(struct server *s, struct conn *c, u32 options, struct conn *target);
void tracking_off(struct server *s, struct conn *c);
void tracking_add_prefix(struct tracking *g, struct tracker *t, bytes prefix); /* if it does not have it */
bytes tracking_prefix(const struct tracker *t, u32 i);

/* What CLIENT LIST says: flags ("tRB"), and whom it redirects to (-1: it does not track). */
size_t tracking_flags(const struct conn *c, char *out);
long long tracking_redirect(const struct conn *c);

#endif
