/* A snapshot for another site (sync.h): all keys as they are at one moment, returned a few at a time while
 * they change.
 *
 *     site_walk_begin(&w, s);                        the moment of the snapshot
 *     while (site_walk_some(&w, bytes, fn, arg)) …   between transactions; fn gets db, name, dump
 *     site_walk_end(&w);
 *
 * A key that is about to change is dumped first, and its name is remembered: site_key_load reports such keys
 * (key.watch). A key may be returned twice, with the same dump. The memory for dumps that were not returned
 * yet is limited: beyond that the walk is lost. */
#ifndef MAYFLY_SITE_WALK_H
#define MAYFLY_SITE_WALK_H

#include "site/key.h"

struct site;

#define SITE_WALK_AHEAD_MAX ((size_t)256 << 20) /* bytes of keys that were dumped ahead of their turn */

/* Iterates over the names of all keys, including those of which only metadata is left. A key that exists the
 * whole time is found, perhaps twice; keys may change meanwhile, also in other transactions. */
struct site_names {
    u32 db, of;        /* where it continues; whose names were found */
    struct buf recent; /* what each_kept may not find yet (site.recent) … */
    size_t recent_taken;
    bool scans; /* the companions that stay were all found */
    u64 cursor;
    struct buf place;
    struct buf found; /* and not handed out yet … */
    size_t taken;     /* … from here on */
};
void site_names_begin(struct site_names *it, const struct site *s);
bool site_names_next(struct site_names *it, struct site *s, u32 *db, bytes *name); /* until the next call */
void site_names_release(struct site_names *it);

typedef void (*site_dump_fn)(void *arg, u32 db, bytes name, bytes dump);

struct site_walk {
    struct site *s;
    struct site_walk *next; /* of site.walks */
    bool lost;
    struct site_names names;
    struct buf ahead;    /* database, name, dump … of keys that have changed since */
    struct buf changed;  /* their names: database, name … */
    u32 *table, n, room; /* where in `changed` a name is, by its hash; 0: free. Where + 1. */
    struct site_key key;
    struct site_cell cell;
    struct buf dump;
};

void site_walk_begin(struct site_walk *w, struct site *s);
/* Returns keys of about `bytes`. False: these were the last, or the walk is lost. */
bool site_walk_some(struct site_walk *w, size_t bytes_max, site_dump_fn fn, void *arg);
void site_walk_end(struct site_walk *w);

/* A key is about to change, in all databases if the name is NULL. Called by site_key_load. */
void site_walk_changes(struct site_walk *first, u32 db, bytes name);

#endif
