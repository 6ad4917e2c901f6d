/* What the fast paths for effects of other sites share (receive_fast.c, receive_write.c). Each returns false,
 * with nothing done, if the effect or the key is not of the usual kind, and otherwise does what site_apply()
 * would.
 *
 * An author who had seen the only claim of a key had seen everything in the key but for deadlines: every
 * write makes a claim, which replaces the claims that its author had seen, and what an author had seen
 * includes what the authors of those effects had seen. An EXPIRE makes no claim. */
#ifndef MAYFLY_SITE_RECEIVE_PARTS_H
#define MAYFLY_SITE_RECEIVE_PARTS_H

#include "site/site.h"

/* The clock of an effect: only the gids in use. */
struct receive_clock {
    struct site_dot dots[SITE_GIDS];
    u32 n;
};

struct receive {
    struct site *s;
    struct site_effect *e;
    struct receive_clock context;
    struct key_ref ref;
    bool known; /* there is metadata … */
    bytes head; /* … this */
};

/* Whether the author had; also no dot. `bug`: of plant.h, by which it always had. */
bool receive_saw(const struct receive *f, struct site_dot dot, u64 bug);
/* Finds the key. False: there is no such database. */
bool receive_find(struct receive *f, u32 db, bytes name);
bool receive_is_past(const struct receive *f, i64 deadline_ms);
/* The key is there, has one claim, and perhaps a deadline, which has not passed; the author had seen both. */
bool receive_get_head(struct receive *f, struct site_head *h, u64 bug);
void receive_accept(struct receive *f); /* from here on the effect is applied */
void receive_put_head(struct receive *f, const struct site_head *h);

/* Writes in place, and first writes to a new key (receive_write.c). */
bool receive_write(struct receive *f);

#endif
