#include "site/clock.h"

/* Nearly all gids are unused, usually those of whole blocks. */
#define BLOCK 32

static bool clock_block_is_empty(const struct site_clock *c, u32 g)
{
    static const u64 zeros[BLOCK];
    return memcmp(&c->seq[g], zeros, sizeof zeros) == 0;
}

bool site_clock_covers(const struct site_clock *a, const struct site_clock *b)
{
    for (u32 g = 0; g < SITE_GIDS; g += BLOCK) {
        if (clock_block_is_empty(b, g)) continue;
        for (u32 i = g; i < g + BLOCK; i++)
            if (a->seq[i] < b->seq[i]) return false;
    }
    return true;
}

void site_clock_join(struct site_clock *into, const struct site_clock *from)
{
    for (u32 g = 0; g < SITE_GIDS; g += BLOCK) {
        if (clock_block_is_empty(from, g)) continue;
        for (u32 i = g; i < g + BLOCK; i++) into->seq[i] = MAX(into->seq[i], from->seq[i]);
    }
}

u64 site_clock_sum(const struct site_clock *c)
{
    u64 sum = 0;
    for (u32 g = 0; g < SITE_GIDS; g++) sum += c->seq[g];
    return sum;
}

void site_put_dot(struct buf *to, struct site_dot d)
{
    char *p = buf_reserve(to, 11);
    to->n += (size_t)(site_write_dot(p, d) - p);
}

void site_put_clock(struct buf *to, const struct site_clock *c)
{
    size_t count = to->n;
    u8 n = 0;
    site_put_u8(to, 0);
    for (u32 g = 0; g < SITE_GIDS; g += BLOCK) {
        if (clock_block_is_empty(c, g)) continue;
        for (u32 i = g; i < g + BLOCK; i++) {
            if (i == 0 || c->seq[i] == 0) continue;
            site_put_dot(to, (struct site_dot){c->seq[i], (u8)i});
            n++;
        }
    }
    to->p[count] = (char)n;
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
