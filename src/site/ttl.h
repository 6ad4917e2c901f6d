/* The deadlines of a key, or of a hash field, and the marks of its expiries. Several deadlines are there only
 * after concurrent writes. Of these the longest counts, and none (PERSIST) is the shortest; one that was only
 * carried along (kept) counts if there is no other. */
#ifndef MAYFLY_SITE_TTL_H
#define MAYFLY_SITE_TTL_H

#include "site/clock.h"

struct site_deadline {
    struct site_dot dot;
    i64 at_ms;             /* 0: none (PERSIST) */
    struct site_dot birth; /* of the SET it came with: it counts only while that SET's value shows */
    bool kept;             /* carried along by a write in place: counts if nothing else does */
};

struct site_mark {
    struct site_dot dot;
    struct buf clock; /* encoded: what the expiry had seen */
};

struct site_ttl {
    struct site_deadline *deadlines;
    struct site_mark *marks;
    u32 n_deadlines, n_marks, room_deadlines, room_marks;
};

static inline bool site_ttl_empty(const struct site_ttl *t) { return (t->n_deadlines | t->n_marks) == 0; }
void site_ttl_reset(struct site_ttl *t); /* now empty; keeps its memory */
void site_ttl_release(struct site_ttl *t);

void site_ttl_add(struct site_ttl *t, struct site_deadline d);
void site_ttl_add_mark(struct site_ttl *t, struct site_dot dot, bytes clock);

bool site_deadline_beats(const struct site_deadline *a, const struct site_deadline *b);
const struct site_deadline *site_ttl_longest(const struct site_ttl *t); /* NULL: there is no deadline */
i64 site_ttl_at(const struct site_ttl *t);                              /* when that is; 0: none */
bool site_ttl_made(const struct site_ttl *t, struct site_dot dot);      /* whether a deadline has this dot */

/* What an effect with this context does: an EXPIRE or PERSIST, or (kept) a write in place; a removal. */
void site_ttl_replace(struct site_ttl *t, const struct site_clock *context, struct site_deadline by);
void site_ttl_remove(struct site_ttl *t, const struct site_clock *clock);
void site_ttl_spend(struct site_ttl *t, bytes dots);
bool site_ttl_tidy(const struct site_ttl *t); /* nothing for garbage collection */
void site_ttl_collect(struct site_ttl *t);    /* garbage: all but the longest deadline */

/* Appends the dots of deadlines that have passed. */
void site_ttl_past(const struct site_ttl *t, i64 now_ms, struct buf *dots);
static inline bool site_deadline_past(const struct site_deadline *d, i64 now_ms)
{
    return d->at_ms && d->at_ms <= now_ms;
}

/* Full sync: keeps what both have, and what either has that the other had not seen. */
void site_ttl_merge(struct site_ttl *t, const struct site_ttl *o, const struct site_clock *mine,
                    const struct site_clock *theirs);

/* As bytes: a count, and for each deadline flag, dot, time, birth; a count, and for each mark dot, clock. */
void site_put_deadlines(struct buf *to, const struct site_ttl *t);
void site_put_marks(struct buf *to, const struct site_ttl *t);
void site_get_deadlines(struct site_reader *r, struct site_ttl *t);
void site_get_marks(struct site_reader *r, struct site_ttl *t);
bool site_ttl_covered(const struct site_ttl *t, const struct site_clock *clock); /* all dots of it */

#endif
