/* Effects: the changes made by one write at a site, as bytes that every site applies in the same way.
 *
 *     effect = dot · stamp (8 bytes) · clock · move · move …
 *     move   = op [· database · name] · what the op needs
 *
 * The clock is the effect's context: the effects that its author had applied. A move removes atoms that the
 * context covers and adds atoms that are marked by the effect's dot. The stamp is a hybrid logical clock:
 * milliseconds << 16 and a counter.
 *
 * Effects are untrusted input. site_effect_parse() checks the whole effect, so that applying it can't fail:
 * its author can have known every dot in it, and types, numbers and list positions are well formed. */
#ifndef MAYFLY_SITE_EFFECT_H
#define MAYFLY_SITE_EFFECT_H

#include "engine/handles.h"
#include "site/clock.h"
#include "site/number.h"

enum site_op {
    MOVE_CLAIM = 1, /* the key is of this type, as far as its author is concerned */
    MOVE_PUT,       /* a field, member, element or string gets a value */
    MOVE_ADD,       /* its author's running total of increments becomes this */
    MOVE_REM,       /* a field, member or element goes */
    MOVE_CLEAR,     /* the whole key goes: DEL and overwriting; an expiry, if it has a scope */
    MOVE_TTL,       /* EXPIRE, PERSIST, or the deadline of a SET */
    MOVE_KEEP,      /* a write that leaves the deadline as it is carries it along */
    MOVE_SPEND,     /* deadlines that have passed while another holds, and strings that lost with them */
    MOVE_FIELD_TTL,    /* of a hash field: HEXPIRE, HPERSIST, or what another write says of its deadline */
    MOVE_FIELD_SPEND,  /* of a hash field, as SPEND */
    MOVE_FIELD_EXPIRE, /* a field that is past its deadline goes: what the scope covers */
    MOVE_FLUSH,     /* all keys of a database go, or of all databases */
    MOVE_JOIN,      /* a site becomes a member */
    MOVE_EVICT,     /* a site is no member any more */
    MOVE_MORE,      /* this effect and its author's next are applied together (site_receive) */
};

/* What MOVE_FIELD_TTL does to a field's deadlines. */
enum site_field_ttl {
    FIELD_GETS,  /* HEXPIRE; HPERSIST, if at_ms is 0 */
    FIELD_KEEPS, /* a write in place carries the deadline along */
    FIELD_LOSES, /* HSET: those that its author saw go */
};

#define SITE_ALL_DBS UINT32_MAX
#define SITE_NAME_MAX ((size_t)512 << 20) /* bytes of a name */

struct site_move {
    enum site_op op;
    u32 db;
    bytes name;
    enum value_type kind;
    bytes path;            /* PUT to REM, FIELD_…: the field, member or position (place.h); a string: empty */
    bytes value;           /* PUT */
    bytes seen;            /* PUT, REM, CLEAR, FIELD_EXPIRE, FLUSH: counters that its author saw
                            * (site_get_seen) */
    u64 stamp;             /* PUT, CLAIM: 0, the effect's own */
    struct site_dot birth; /* PUT: the SET that the string descends from. TTL, KEEP: whose deadline it is */
    bool fresh;            /* ADD: nothing of its author counts here but this one */
    u64 prev;              /* ADD: its author's increments up to this one don't count here … */
    struct site_num prev_total; /* … and come to this much */
    struct site_num total;
    bytes scope; /* CLEAR, FIELD_EXPIRE: of an expiry, a clock: it removes what this covers, not what the
                  * context does */
    i64 at_ms;         /* TTL, KEEP, FIELD_TTL: the deadline; 0 for none */
    enum site_field_ttl field_ttl;
    bool shows;        /* FIELD_EXPIRE: the hash showed; claims of other types go, too */
    bytes spent, lost; /* SPEND, FIELD_SPEND: dots of deadlines; SPEND: and of strings */
    u8 gid;            /* JOIN, EVICT */
};

struct site_effect {
    struct site_dot dot;
    u64 stamp;
    struct site_clock context;
    bytes moves;
    bytes all; /* all of it */
    bool more; /* it has MOVE_MORE */
};

/* `raw` must live as long as the effect. False: it is not an effect, and `why` says what is wrong. */
bool site_effect_parse(bytes raw, struct site_effect *out, const char **why);
void site_put_effect_head(struct buf *to, struct site_dot dot, u64 stamp, const struct site_clock *context);

/* The key that an effect is about, or that its first move is about, to prefetch it: the effect is not
 * checked. False: there is none. `element`, unless NULL: of the field, member or element; empty: none. */
bool site_effect_key(bytes raw, u32 *db, bytes *name, bytes *element);

/* Iterates over the moves of an effect, or over other bytes that contain moves. */
struct site_moves {
    struct site_reader in;
    u32 db;
    bytes name;
};
struct site_moves site_moves_of(bytes moves);
enum site_op site_first_op(bytes moves); /* of at least one */
bool site_moves_next(struct site_moves *it, struct site_move *out); /* false: the end, or it.in.bad */
void site_put_move(struct buf *to, const struct site_move *m, bool same_name); /* ... as the move before it */

/* The moves of a SET to a key of which no counters were seen: the same bytes as CLEAR, CLAIM, PUT and, if
 * at_ms, TTL with this birth. */
void site_put_set(struct buf *to, u32 db, bytes name, bytes value, i64 at_ms, struct site_dot birth);
/* Reads them back. False: these are other moves, or more than these. */
struct site_set {
    u32 db;
    bytes name, value;
    i64 at_ms; /* 0: none */
    struct site_dot birth;
};
bool site_get_set(bytes moves, struct site_set *out);

/* Counters that an author saw in a cell: for each gid, up to which effect, and the total. */
struct site_seen {
    u8 gid;
    u64 hi;
    struct site_num total;
};
void site_put_seen(struct buf *to, const struct site_seen *one);
bool site_get_seen(struct site_reader *r, struct site_seen *out); /* false: no more of them */

/* CLEAR and FLUSH have a list of cells, each with the counters that were seen in it. */
struct site_seen_cell {
    u32 db; /* FLUSH: of which key */
    bytes name;
    enum value_type kind;
    bytes path, seen;
};
void site_put_seen_cell(struct buf *to, enum site_op op, const struct site_seen_cell *c);
bool site_get_seen_cell(struct site_reader *r, enum site_op op, struct site_seen_cell *c);

#endif
