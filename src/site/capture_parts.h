/* What the parts of the capture share (capture.c, capture_value.c, capture_list.c, capture_stream.c,
 * capture_field.c, capture_key.c).
 *
 * A primitive of the site:
 *
 *     struct site_capture *c = capture_enter(e);        the engine has its own table now
 *     struct site_key *k = capture_key(c, ref);         the key, loaded by the command's ref
 *     capture_start(c, k, kind);                        moves, and at once what they do to `k`
 *     own->…                                            the engine's value
 *     capture_save(c, k, ref);                          the companion; the ref is up to date again
 *     capture_leave(c);
 *
 * Invariants:
 * 1. site.moves contains the open effect, with its head, if `open`; otherwise it is empty.
 * 2. The stored state of a key is the result of applying the moves so far (apply.c). The context of a local
 *    write covers everything it sees, so it just drops what it removes, except what the effect itself made.
 * 3. capture_split() precedes a move that would have to remove what the open effect made.
 * 4. While no primitive runs, `key` equals what is stored, if `keyed`. */
#ifndef MAYFLY_SITE_CAPTURE_PARTS_H
#define MAYFLY_SITE_CAPTURE_PARTS_H

#include <stddef.h>

#include "site/capture.h"
#include "site/write.h"

static inline struct site_capture *capture_of(struct engine *e)
{
    return (struct site_capture *)((uintptr_t)e->ops - offsetof(struct site_capture, ops));
}

/* What a caller could still change until now is as it is. `ref` may have moved by that; NULL: there is
 * none. */
void capture_settle(struct site_capture *c, struct key_ref *ref);

static inline struct site_capture *capture_enter(struct engine *e, struct key_ref *ref)
{
    struct site_capture *c = capture_of(e);
    e->ops = c->own;
    if (UNLIKELY(c->text || c->erased.n)) capture_settle(c, ref);
    return c;
}

static inline void capture_leave(struct site_capture *c) { c->site.e->ops = &c->ops; }

/* Staging databases are not captured: the engine's own primitive is used. */
static inline bool capture_serves(const struct site_capture *c, u32 db) { return db < c->site.databases; }

static inline enum engine_intent capture_intent(struct site_capture *c)
{
    struct engine *e = c->site.e;
    enum engine_intent intent = e->intent;
    e->intent = INTENT_WRITE;
    if (PLANTED_SITE(&c->site, PLANT_ADD_PUTS) && intent == INTENT_ADD) return INTENT_IN_PLACE;
    return intent;
}

/* -- effects */
void capture_open_effect(struct site_capture *c);
void capture_split(struct site_capture *c); /* the open effect ends, if there is one; another follows */
void capture_move(struct site_capture *c, const struct site_key *k, struct site_move *m);
static inline struct site_dot capture_dot(struct site_capture *c)
{
    if (!c->open) capture_open_effect(c);
    return c->effect.dot;
}

/* Whether the open effect made some of it. */
bool capture_made_key(const struct site_capture *c, const struct site_key *k);
bool capture_made_cell(const struct site_capture *c, const struct site_cell *cell);
bool capture_made_inc(const struct site_capture *c, const struct site_cell *cell);

/* -- keys */
struct site_key *capture_key(struct site_capture *c, const struct key_ref *ref);
/* The same, after deleting what is past its deadline without hiding the key, which may change the ref. */
struct site_key *capture_live_key(struct site_capture *c, struct key_ref *ref);
/* The same for a key that is about to be cleared: only what hides it is deleted first. */
struct site_key *capture_free_key(struct site_capture *c, struct key_ref *ref);
void capture_save(struct site_capture *c, struct site_key *k, struct key_ref *ref);
void capture_note_gone(struct site_capture *c, const struct site_key *k);
void capture_expire(struct site_capture *c, u32 db, bytes name);
/* Of these fields (site_expire_fields). The ref is found again: the hash may be gone. */
void capture_expire_fields(struct site_capture *c, struct key_ref *ref, bytes fields);

/* -- moves, with what they do to the key; the engine's values are left to the caller */
void capture_clear(struct site_capture *c, struct site_key *k);
/* What a clear does here. */
void capture_clear_atoms(struct site_capture *c, struct site_key *k);
void capture_claim(struct site_capture *c, struct site_key *k, enum value_type kind);
void capture_start(struct site_capture *c, struct site_key *k, enum value_type kind);
void capture_ttl(struct site_capture *c, struct site_key *k, i64 at_ms, struct site_dot birth);
/* The cell gets this value, which the engine shows; `cell` was loaded for it. */
void capture_put_cell(struct site_capture *c, struct site_key *k, struct site_cell *cell, bytes value);
/* What a write to a field of a hash with deadlines says about the field's: it stays, or goes. Comes before
 * the value. */
void capture_field_stays(struct site_capture *c, struct site_key *k, struct site_cell *cell, bool stays);
void capture_field_ttl(struct site_capture *c, struct site_key *k, struct site_cell *cell, i64 at_ms);
/* Cells of which some show; the engine's values stay. All that show: the key is cleared. */
void capture_rem_cell(struct site_capture *c, struct site_key *k, struct site_cell *cell);
/* The key, which has a value and no cells, is new: all it has is moves. */
void capture_adopt(struct site_capture *c, struct key_ref *ref);

/* -- the usual writes: capture_plain.c */
/* Elements are put into a key in which each was written once: begin(), put() for each that the engine has
 * got, end(). `fresh` is how many the engine had got before begin() if the key is new. */
bool capture_plain_begin(struct site_capture *c, struct key_ref *ref, u64 fresh, struct site_head *h);
void capture_plain_put(struct site_capture *c, struct key_ref *ref, struct site_head *h, bytes path,
                       bytes value, bool is_new);
void capture_plain_end(struct site_capture *c, struct key_ref *ref, const struct site_head *h);
/* One that the engine still has is removed. */
bool capture_plain_rem(struct site_capture *c, struct key_ref *ref, bytes path);
/* The metadata of elements that the engine is about to add to a list, or to pop. */
bool capture_plain_push(struct site_capture *c, struct key_ref *ref, bool front, const bytes *v, u32 n);
bool capture_plain_pop(struct site_capture *c, struct key_ref *ref, bool front);
/* An entry that the engine is about to get, after all others. */
bool capture_plain_entry(struct site_capture *c, struct key_ref *ref, bytes path, bytes value);
/* Whether the last move was about this stream, and no cell says its last id. */
bool capture_plain_only_entries(struct site_capture *c, struct key_ref *ref);
/* A counter of this site grows; the engine's value is the caller's. */
bool capture_plain_incr(struct site_capture *c, struct key_ref *ref, i64 by);
bool capture_plain_add(struct site_capture *c, struct key_ref *ref, bytes path, i64 by);
/* EXPIRE and DEL, with the engine's part. */
bool capture_plain_ttl(struct site_capture *c, struct key_ref *ref, i64 at_ms);
bool capture_plain_drop(struct site_capture *c, struct key_ref *ref);

void capture_value_ops(struct engine_ops *ops); /* strings, hashes, sets, sorted sets */
void capture_list_ops(struct engine_ops *ops);
void capture_field_ops(struct engine_ops *ops); /* deadlines of hash fields */
void capture_key_ops(struct engine_ops *ops);
void capture_stream_ops(struct engine_ops *ops);
/* Path and value of each cell of a stream that has none yet. */
void capture_gather_stream(struct site_capture *c, struct key_ref *ref, struct buf *out);
void capture_settle_text(struct site_capture *c);
void capture_settle_erased(struct site_capture *c);

#endif
