/* The journal: the canonical form of a write, and its distribution to sinks.
 *
 * A record describes what one command (or one MULTI transaction) did to the data, as effects: commands with
 * absolute deadlines whose result depends only on the data (SPOP becomes SREM, EXPIRE becomes PEXPIREAT, a
 * key found dead becomes DEL). Replaying the records in order into an empty server gives an identical
 * dataset, including deadlines. A record also has the time and the seed the command ran with.
 *
 * Sinks (AOF, replicas, sites, a recorder in tests) receive closed records in sequence order and borrow them.
 * Without a sink no record is built, but the sequence number still advances with every change. */
#ifndef MAYFLY_JOURNAL_JOURNAL_H
#define MAYFLY_JOURNAL_JOURNAL_H

#include "base/buf.h"

struct journal_record {
    u64 seq;        /* sequence number in the region, strictly increasing */
    i64 now_ms;     /* the time the command ran at */
    u64 seed;       /* the seed it ran with */
    u32 effects;    /* number of commands in `resp` */
    u32 messages;   /* of these, commands that change no data: PUBLISH */
    u32 expired;    /* of these, deletions of expired keys, which need not be atomic */
    bool wrapped;   /* the effects are between MULTI and EXEC */
    bool newer;     /* contains an effect unknown to Redis 7.0, which would refuse the whole block */
    struct buf resp;/* the effects as RESP arrays of bulk strings, SELECT included where the db changes … */
    size_t select;  /* … bytes of a SELECT at its beginning */
    bytes lent;     /* a very long argument that was not copied; empty: `resp` is the whole text … */
    size_t lent_at; /* … otherwise it belongs at this offset of `resp`: see journal_parts */
};

struct journal_sink {
    void (*append)(struct journal_sink *, const struct journal_record *); /* borrows the record */
    struct journal_sink *next;
    bool messages; /* it also receives messages */
};

struct journal {
    struct journal_sink *sinks;
    struct journal_record open; /* being built */
    bool changed; /* the open record covers a change to the data, with or without a sink */
    u64 seq;                    /* of the last closed record, or of the last change without one */
    i64 db;                     /* database of the last effect; -1: none yet */
};

static inline bool journal_wanted(const struct journal *j) { return j->sinks != NULL; }

void journal_attach(struct journal *j, struct journal_sink *sink);
void journal_detach(struct journal *j, struct journal_sink *sink);
void journal_release(struct journal *j);

/* Marks the open record as covering a change to the data. */
static inline void journal_changed(struct journal *j) { j->changed = true; }

/* Adds an effect to the open record and marks it as a change; without a sink it only marks the change. */
void journal_effect(struct journal *j, u32 db, int argc, const bytes *argv);

/* Like journal_effect, but borrows the last argument until the record is closed instead of copying it. For
 * one argument per record of more than JOURNAL_LEND_MIN bytes: copying it would block the loop. */
void journal_effect_lent(struct journal *j, u32 db, int argc, const bytes *argv);
#define JOURNAL_LEND_MIN (16u << 20)

/* Adds the deletion of a key that has expired. */
void journal_expired(struct journal *j, u32 db, bytes key);

/* Adds a message: a command that changes no data and is only for live followers. Does nothing without a sink
 * that receives messages. */
void journal_message(struct journal *j, u32 db, int argc, const bytes *argv);

/* Whether a record contains messages only. */
static inline bool journal_is_message(const struct journal_record *r) { return r->messages == r->effects; }

/* Discards the open record, because its changes were rolled back. */
void journal_abandon(struct journal *j);

/* Closes the open record and passes it to the sinks. Several effects are wrapped in MULTI … EXEC, so that
 * they are atomic for every reader, unless all are deletions of expired keys. A record without effects
 * reaches no sink; it takes a sequence number only if it covers a change. Returns the last sequence
 * number. */
u64 journal_close_record(struct journal *j, i64 now_ms, u64 seed); /* a record with effects */
static inline u64 journal_close(struct journal *j, i64 now_ms, u64 seed)
{
    if (j->open.effects) return journal_close_record(j, now_ms, seed);
    j->seq += j->changed;
    j->changed = j->open.newer = false;
    return j->seq;
}

/* The SELECT at the beginning of a record, if any; and its effects without MULTI and EXEC. */
bytes journal_select(const struct journal_record *record);
bytes journal_effects(const struct journal_record *record);

/* The bytes a sink writes: `text` (from journal_effects, or all of `resp`) with the lent argument inserted,
 * if any, as the concatenation of the parts. Unused parts are empty. */
#define JOURNAL_PARTS 3
void journal_parts(const struct journal_record *record, bytes text, bytes part[JOURNAL_PARTS]);

#endif
