/* Sites, dots and clocks.
 *
 * A site has a number, its gid (1 to 255). Its s-th write has the dot (gid, s). A clock says, for each
 * site, up to which of its writes have been applied; a clock covers a dot if that write is among
 * them. Writes of one site are applied in order, so a clock describes exactly a set of writes. */
#ifndef MAYFLY_SITE_CLOCK_H
#define MAYFLY_SITE_CLOCK_H

#include "site/code.h"

#define SITE_GIDS 256 /* gids are below this; 0 is no site */
#define SITE_SEQ_MAX ((u64)1 << 48)

struct site_dot {
    u64 seq;
    u8 gid; /* 0: no dot */
};

struct site_clock {
    u64 seq[SITE_GIDS];
};

static inline bool site_dot_eq(struct site_dot a, struct site_dot b)
{
    return a.gid == b.gid && a.seq == b.seq;
}

/* Orders dots by gid, then sequence number: where a choice has to be the same everywhere. */
static inline int site_dot_cmp(struct site_dot a, struct site_dot b)
{
    if (a.gid != b.gid) return a.gid < b.gid ? -1 : 1;
    return (a.seq > b.seq) - (a.seq < b.seq);
}

static inline bool site_covers(const struct site_clock *c, struct site_dot d)
{
    return c->seq[d.gid] >= d.seq;
}

bool site_clock_covers(const struct site_clock *a, const struct site_clock *b); /* all that b does */
void site_clock_join(struct site_clock *into, const struct site_clock *from);
u64 site_clock_sum(const struct site_clock *c); /* how many writes it covers */

/* A clock is written as the number of its entries, and for each gid and sequence number, in order of gids. */
void site_put_dot(struct buf *to, struct site_dot d); /* 1 byte and a varint; 1 byte for no dot */
static inline char *site_write_dot(char *p, struct site_dot d) /* at most 11 bytes; returns the end */
{
    *p++ = (char)d.gid;
    return d.gid ? site_write_varint(p, d.seq) : p;
}
static inline struct site_dot site_get_dot(struct site_reader *r)
{
    struct site_dot d = {.gid = site_get_u8(r)};
    if (d.gid) d.seq = site_get_varint(r);
    if (d.seq >= SITE_SEQ_MAX) r->bad = true;
    return d;
}
void site_put_clock(struct buf *to, const struct site_clock *c);
void site_get_clock(struct site_reader *r, struct site_clock *c);

#endif
