#include "site/clock.h"

bool site_clock_covers(const struct site_clock *a, const struct site_clock *b)
{
    for (u32 g = 0; g < SITE_GIDS; g++)
        if (a->seq[g] < b->seq[g]) return false;
    return true;
}

void site_clock_join(struct site_clock *into, const struct site_clock *from)
{
    for (u32 g = 0; g < SITE_GIDS; g++) into->seq[g] = MAX(into->seq[g], from->seq[g]);
}

u64 site_clock_sum(const struct site_clock *c)
{
    u64 sum = 0;
    for (u32 g = 0; g < SITE_GIDS; g++) sum += c->seq[g];
    return sum;
}

void site_put_dot(struct buf *to, struct site_dot d)
{
    site_put_u8(to, d.gid);
    if (d.gid) site_put_varint(to, d.seq);
}

struct site_dot site_get_dot(struct site_reader *r)
{
    struct site_dot d = {.gid = site_get_u8(r)};
    if (d.gid) d.seq = site_get_varint(r);
    if (d.seq >= SITE_SEQ_MAX) r->bad = true;
    return d;
}

void site_put_clock(struct buf *to, const struct site_clock *c)
{
    u8 n = 0;
    for (u32 g = 1; g < SITE_GIDS; g++) n += c->seq[g] != 0;
    site_put_u8(to, n);
    for (u32 g = 1; g < SITE_GIDS; g++)
        if (c->seq[g]) site_put_dot(to, (struct site_dot){c->seq[g], (u8)g});
}

void site_get_clock(struct site_reader *r, struct site_clock *c)
{
    u8 last = 0;
    memset(c, 0, sizeof *c);
    for (u32 n = site_get_u8(r); n > 0 && !r->bad; n--) {
        struct site_dot d = site_get_dot(r);
        if (d.gid <= last || d.seq == 0) r->bad = true;
        if (r->bad) return;
        c->seq[last = d.gid] = d.seq;
    }
}
