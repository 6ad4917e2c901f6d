/* The journal: the canonical form of a write, and who gets it.
 *
 * A record is what one command (or one transaction) did to the data, as plain
 * effects: commands with absolute deadlines whose result depends on nothing but
 * the data they meet (SPOP became SREM, EXPIRE became PEXPIREAT, a key found
 * dead became DEL). Replaying the records in order into an empty server gives
 * an identical dataset, deadlines included. A record also carries the frozen
 * time and the seed it was made with.
 *
 * Sinks (AOF, replicas, sites, a recorder in tests) take finished records in
 * sequence order. With no sink attached nothing is built, but the sequence
 * advances all the same: whether it has moved says whether anything was changed. */
#ifndef MAYFLY_JOURNAL_JOURNAL_H
#define MAYFLY_JOURNAL_JOURNAL_H

#include "base/buf.h"

struct journal_record {
    u64 seq;        /* its number in the region: each is higher than the one before */
    i64 now_ms;     /* the time the command ran at */
    u64 seed;       /* the seed it ran with */
    u32 effects;    /* how many commands `resp` holds */
    u32 messages;   /* of them, those that change no data: PUBLISH */
    u32 expired;    /* of them, deletions of keys whose time had come: they need not be atomic */
    bool wrapped;   /* the effects stand between MULTI and EXEC */
    bool newer;     /* among them one that Redis 7.0 does not know, and whose whole block it would refuse */
    struct buf resp;/* the effects as RESP arrays of bulk strings, SELECT included where the db changes … */
    size_t select;  /* … of which so many bytes are a SELECT before everything else */
    bytes lent;     /* a very long argument that was not copied; empty: `resp` is the whole text … */
    size_t lent_at; /* … otherwise it belongs at this offset of `resp`: see journal_parts */
};

struct journal_sink {
    void (*append)(struct journal_sink *, const struct journal_record *); /* borrows the record */
    struct journal_sink *next;
    bool messages; /* it wants to have those, too */
};

struct journal {
    struct journal_sink *sinks;
    struct journal_record open; /* being built */
    bool changed; /* what it covers has changed data, whether or not a sink is there to be told */
    u64 seq;                    /* of the last closed record, or change without one */
    i64 db;                     /* database the last effect was written for; -1 none yet */
};

static inline bool journal_wanted(const struct journal *j) { return j->sinks != NULL; }

void journal_attach(struct journal *j, struct journal_sink *sink);
void journal_detach(struct journal *j, struct journal_sink *sink);
void journal_release(struct journal *j);

/* The open record covers a change to the data. */
static inline void journal_changed(struct journal *j) { j->changed = true; }

/* Adds an effect, which is a change, to the open record; without a sink only that there was one is noted. */
void journal_effect(struct journal *j, u32 db, int argc, const bytes *argv);

/* As journal_effect, but the last argument is not copied: it stays as it is until the record is closed. For
 * arguments of more than JOURNAL_LEND_MIN bytes, one per record, whose copying would delay all clients. */
void journal_effect_lent(struct journal *j, u32 db, int argc, const bytes *argv);
#define JOURNAL_LEND_MIN (16u << 20)

/* Adds the deletion of a key that has expired. */
void journal_expired(struct journal *j, u32 db, bytes key);

/* Adds a message, which is for those who follow this server as it runs, and changes no data. Nothing happens
 * without a sink that wants it. */
void journal_message(struct journal *j, u32 db, int argc, const bytes *argv);

/* Whether a record tells of no change to the data. */
static inline bool journal_is_message(const struct journal_record *r) { return r->messages == r->effects; }

/* Forgets the open record: what it tells of was undone. */
void journal_abandon(struct journal *j);

/* Ends the open record: more than one effect is wrapped in MULTI … EXEC (atomic
 * for every reader), unless all are keys that expired. One without effects reaches no sink, but takes a
 * number if it covers a change; one without either vanishes. Returns the last sequence number. */
u64 journal_close_record(struct journal *j, i64 now_ms, u64 seed); /* one that has effects */
static inline u64 journal_close(struct journal *j, i64 now_ms, u64 seed)
{
    if (j->open.effects) return journal_close_record(j, now_ms, seed);
    j->seq += j->changed;
    j->changed = j->open.newer = false;
    return j->seq;
}

/* The SELECT a record begins with, if any; and its effects without what they are wrapped in. */
bytes journal_select(const struct journal_record *record);
bytes journal_effects(const struct journal_record *record);

/* The text that sinks take. `text` is what journal_effects returned, or all of `resp`; with the lent
 * argument, if any, it is these parts one after the other. Unused parts are empty. */
#define JOURNAL_PARTS 3
void journal_parts(const struct journal_record *record, bytes text, bytes part[JOURNAL_PARTS]);

#endif
