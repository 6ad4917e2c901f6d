/* A site of active-active replication: its clocks, its members, and the rules by which effects change data.
 * docs/decisions/025-sites.md explains the terms.
 *
 * Everything here is a function of effects and of the time that is passed in: it reads no clock and sends
 * nothing. The caller owns the engine and its transaction; one call changes data and metadata in the open
 * transaction, and the caller commits both. The site's own state (struct site) is in memory.
 *
 *     site_tick(s, wall_ms);                  sets the time, before anything else in a tick
 *     site_write_...(s, db, key, ...)         makes a local write an effect and applies it (write.h)
 *     site_receive(s, raw, &why)              applies an effect of another site
 *     site_expire(s, db, key, NULL)           deletes what is past its deadline in a key
 *     site_hear(s, gid, clock)                learns which effects another site has, so that garbage can be
 *                                             collected
 *     site_collect(s, ...)                    collects garbage
 *     site_merge_...(s, ...)                  merges a full sync (sync.h)
 *
 * Each applied effect, local or remote, is passed to `emit`, which adds it to the backlog for other sites.
 *
 * The effects of one MULTI or script are a *piece*: all but the last have MOVE_MORE. They have consecutive
 * numbers, and wait until all of them can be applied. No other effect is applied between them. */
#ifndef MAYFLY_SITE_SITE_H
#define MAYFLY_SITE_SITE_H

#include "site/effect.h"
#include "site/key.h"
#include "site/plant.h"

#define SITE_MAX_SKEW_MS 60000   /* a stamp further ahead than this is applied, but does not move our clock */
#define SITE_EXPIRE_DELAY_MS 500 /* who did not write a key last waits this long before deleting it */
#define SITE_PENDING_MAX (64u << 20) /* bytes of effects that wait for others */

typedef void (*site_emit_fn)(void *arg, const struct site_effect *e);

struct site_member {
    bool in;
    struct site_dot dot; /* of its JOIN; {0, gid} for a founding member */
};

/* Which effects the site had at which position. The position of a site is the number of effects it has
 * applied. A key stores the position of its last change (site_key.last): effects applied at later positions
 * have not changed it. */
struct site_step {
    u64 position;
    struct site_dot dot;
};

struct site_after; /* content deleted by an expiry that may have to be written again (expire.c) */
struct site_pending;
struct site_walk;

/* Conflicts resolved by this site: several values of one cell, several types, several deadlines. */
enum site_conflict { SITE_CONFLICT_VALUE, SITE_CONFLICT_TYPE, SITE_CONFLICT_DEADLINE, SITE_CONFLICTS };

struct site_stats {
    u64 conflicts[SITE_CONFLICTS];
    u64 expiries_sent;       /* effects that deleted an expired key */
    u64 expiries_suppressed; /* keys that another site deleted while this one waited */
};

struct site {
    struct engine *e;
    u32 databases;
    u8 gid;
    i64 phys_ms; /* the machine's clock, which is not followed back */
    u64 hlc;
    struct site_clock clock;
    u64 position;
    u32 gids; /* nothing is known of this gid and those after it: no clock, member, fence or ack */
    struct site_member members[SITE_GIDS];
    u64 fence[SITE_GIDS]; /* effects of an evicted site after this one are not applied */
    bool fenced[SITE_GIDS];
    struct site_clock *acks[SITE_GIDS]; /* the latest clock that each member has sent us; NULL: none */
    struct site_step *trail;            /* in order of positions */
    u32 n_trail, room_trail;
    u32 n_everywhere; /* steps at its start that all members have; 0 again when the members change */
    u64 stable; /* what came up to this position is everywhere, as of the last site_find_stable() */
    struct site_pending *pending;
    u32 n_pending, room_pending;
    size_t pending_bytes;
    struct site_after *after;
    u32 n_after, room_after;
    site_emit_fn emit;
    void *emit_arg;
    struct site_key key; /* the one in use */
    struct site_cell cell;
    struct buf recent; /* keys of which only metadata is left since this transaction: database, name */
    struct buf moves; /* of the effect that is being made (write.h) */
#ifdef MAYFLY_PLANT
    u64 planted;
#endif
    struct site_walk *walks; /* snapshots that are being sent (walk.h) */
    bool torn;               /* a full sync is being merged, or was when the site stopped (full.h) … */
    i64 torn_ms;             /* … as of this time; there may be atoms that the clock does not cover … */
    struct site_clock torn_upto; /* … but this does */
    struct site_stats stats;
    i64 max_skew_ms, expire_delay_ms; /* SITE_MAX_SKEW_MS, SITE_EXPIRE_DELAY_MS, or as configured … */
    size_t max_pending;               /* … and SITE_PENDING_MAX */
    u64 refused_ahead; /* stamps that were too far ahead to be followed */
    u64 incarnations[SITE_GIDS]; /* which server each site is: site_meet; our own is what we are … */
    u64 replaced_by;             /* … and what is our site in our place; 0: nothing */
    u64 met;                     /* how often one of these has changed */
    bool doubt;     /* others may have effects of ours that were lost here: until they are back … */
    u64 doubt_upto; /* … up to this number, as far as is known, none is made */
};

void site_init(struct site *s, struct engine *e, u32 databases, u8 gid);
void site_release(struct site *s);

/* -- time */
void site_tick(struct site *s, i64 wall_ms); /* when a transaction begins */
i64 site_now(
    const struct site *s); /* the later of the machine's clock and the HLC: deadlines are compared to it */
struct site_dot site_next_dot(const struct site *s);
u64 site_next_stamp(const struct site *s);
void site_follow_stamp(struct site *s, u64 stamp); /* of another site's effect */

/* -- effects */
enum site_outcome {
    SITE_APPLIED, /* it, and what waited for it */
    SITE_WAITS,   /* something it depends on is not here yet, or another effect of its piece */
    SITE_KNOWN,   /* it had been applied before, or comes from an evicted site */
    SITE_REFUSED, /* `why` says what is wrong with it; nothing was changed */
    SITE_TOO_MUCH, /* the same: with it, more would wait than max_pending. What waits has been dropped */
};
enum site_outcome site_receive(struct site *s, bytes raw, const char **why);
/* The same in two steps: most effects are SETs that need no more than the first (receive_fast.c). It fills in
 * `e` except for its context. False: nothing was done, the effect has to be parsed and received. */
bool site_receive_fast(struct site *s, bytes raw, struct site_effect *e);
enum site_outcome site_receive_parsed(struct site *s, const struct site_effect *e, const char **why);
/* Whether it is the next effect of a piece whose earlier effects are all waiting: then the effects that its
 * context covers are still to come. */
bool site_is_next_part(const struct site *s, struct site_dot dot);
void site_apply_pending(struct site *s); /* effects that waited for others, which a full sync has brought */
void site_commit(struct site *s);        /* makes the effect of s->moves, applies it, and empties s->moves */

/* -- members and clocks (members.c) */
/* A site's replica may take its place, perhaps without having all of its effects. It gets a higher number,
 * the incarnation; 0 is the site's first server. False: a later incarnation of this site is known. */
bool site_meet(struct site *s, u8 gid, u64 incarnation);
void site_met_other_self(struct site *s, u64 incarnation); /* of ourselves, a later one */
void site_take_place(struct site *s, u32 random);          /* this server becomes the site's next one */
/* What a clock of another site says of our own effects. False: it has some that we have never made. In doubt
 * these are awaited. */
bool site_knows_us(struct site *s, const struct site_clock *clock);
void site_found(struct site *s, const u8 *gids, u32 n); /* a new group with these members */
void site_admit(struct site *s, u8 gid);
bool site_may_start(const struct site *s, u8 gid); /* all members know of it: it may be given its snapshot */
void site_fence(struct site *s, u8 gid, u64 seq);
void site_evict(struct site *s, u8 gid);
void site_hear(struct site *s, u8 gid, const struct site_clock *clock);
/* Before anything is noted of a site. */
static inline void site_know(struct site *s, u8 gid) { s->gids = MAX(s->gids, gid + 1u); }
void site_note_applied(struct site *s, struct site_dot dot);
void site_note_merged(struct site *s, const struct site_clock *theirs);
void site_add_step(struct site *s, struct site_step step);
void site_find_stable(struct site *s);

/* -- expiry (expire.c) */
/* Deadlines that arrived after they had passed: they end only what `clock` covers; in a piece, only what
 * their effect's author had seen and made by then. */
struct site_late {
    const struct site_dot *dots;
    u32 n;
    const struct site_clock *clock;
    bool piece; /* `clock` is that of the piece's end */
};
/* Returns whether fields of the key have deadlines of their own, or had. */
bool site_expire(struct site *s, u32 db, bytes name, const struct site_late *late);
bool site_due(const struct site *s, const struct site_key *k);
/* Expires one key, from a periodic pass: its owner deletes it at once, others after SITE_EXPIRE_DELAY_MS. */
void site_expire_pass(struct site *s, u32 db, bytes name);
/* Before a clear with a scope, or a mark that a full sync brings: remembers what an extension of ours
 * would need. `dot`: of the expiry. */
void site_remember(struct site *s, struct site_key *k, struct site_dot dot, const struct site_clock *scope);

/* The same for hash fields. Fields: paths, each with a length (site_get_bytes). */
bool site_field_due(const struct site *s, const struct site_cell *c);
void site_expire_fields(struct site *s, u32 db, bytes name, bytes fields, const struct site_late *late);
void site_expire_field(struct site *s, u32 db, bytes name, bytes field); /* before something joins it */
void site_expire_due_fields(struct site *s, u32 db, bytes name);         /* all that show and are due */
/* Before a field goes by an expiry, whose dot is `dot`; `top`: the claim that wins. */
void site_remember_field(struct site *s, struct site_key *k, const struct site_claim *top,
                         struct site_cell *c, struct site_dot dot, const struct site_clock *scope);

void site_reassert(struct site *s); /* in doubt, later */
/* The site has done so when it had seen these. */
void site_forget_reasserted(struct site *s, const struct site_clock *seen);
void site_forget_after(struct site *s);

/* -- garbage (gc.c): call site_find_stable() first */
void site_collect(struct site *s, u32 db, bytes name);
/* Collects garbage of about `count` keys of a database; may miss keys deleted in the open transaction. False:
 * these were the last keys. `place`: as companion.each_kept. */
bool site_collect_some(struct site *s, u32 db, struct buf *place, u32 count);

/* -- applying (apply.c) */
void site_apply(struct site *s, const struct site_effect *e);
void site_save(struct site *s, struct site_key *k, u64 position); /* site_key_save, and takes note of it */
/* Calls fn with the name of each key of a database, including keys of which only metadata is left. fn may
 * change the key. */
typedef void (*site_name_fn)(void *arg, u32 db, bytes name);
void site_each_key(struct site *s, u32 db, site_name_fn fn, void *arg);

#endif
