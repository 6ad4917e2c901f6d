/* The latest effects that a site has applied, its own and those of others, in that order. Other sites read
 * the effects they lack from here, so any site can bring any other up to date. */
#ifndef MAYFLY_SITE_BACKLOG_H
#define MAYFLY_SITE_BACKLOG_H

#include "site/effect.h"

struct site_backlog {
    struct site_backlog_item *items; /* a ring */
    u32 room, first, n; /* room: a power of two, or 0 */
    u64 number; /* of the first item; numbers only grow */
    size_t bytes, limit;
    struct site_clock from; /* of each site, all that comes after this is here */
};

void site_backlog_init(struct site_backlog *b, size_t limit, const struct site_clock *now);
void site_backlog_release(struct site_backlog *b);
/* Effects of a transaction are gathered in a buffer, and are copied to the backlog when it is committed. The
 * oldest beyond the limit are dropped. */
void site_backlog_gather(struct buf *batch, struct site_dot dot, bytes raw);
void site_backlog_add(struct site_backlog *b, struct buf *batch); /* leaves the buffer empty */
void site_backlog_gap(struct site_backlog *b,
                      const struct site_clock *now); /* a full sync: effects never came */

/* Whether it has everything that a site with this clock lacks. */
bool site_backlog_reaches(const struct site_backlog *b, const struct site_clock *clock);
/* The next effect, from *number on, that `clock` does not cover; *number becomes the one after it. False:
 * none yet. The bytes are valid until the next add. *lost: the effects at *number have been dropped. */
bool site_backlog_next(const struct site_backlog *b, const struct site_clock *clock, u64 *number, bytes *raw,
                       bool *lost);

#endif
