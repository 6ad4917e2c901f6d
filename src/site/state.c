#include "site/state.h"

#include "base/alloc.h"

#define STATE_VERSION 1

static void state_put_trail(const struct site *s, struct buf *to)
{
    u64 last = 0;
    site_put_varint(to, s->n_trail);
    for (u32 i = 0; i < s->n_trail; i++) {
        site_put_varint(to, s->trail[i].position - last);
        site_put_dot(to, s->trail[i].dot);
        last = s->trail[i].position;
    }
}

/* Members, fences and what members have: for each gid of which anything is known, flags and then that. */
enum { IS_MEMBER = 1, IS_FENCED = 2, HAS_SENT = 4, HAS_INCARNATION = 8, IS_REPLACED = 16 };

static void state_put_gid(const struct site *s, u8 g, struct buf *to)
{
    u8 flags = (s->members[g].in ? IS_MEMBER : 0) | (s->fenced[g] ? IS_FENCED : 0) |
               (s->acks[g] ? HAS_SENT : 0) | (s->incarnations[g] ? HAS_INCARNATION : 0) |
               (g == s->gid && s->replaced_by ? IS_REPLACED : 0);
    if (!flags) return;
    site_put_u8(to, g);
    site_put_u8(to, flags);
    if (flags & IS_MEMBER) site_put_dot(to, s->members[g].dot);
    if (flags & IS_FENCED) site_put_varint(to, s->fence[g]);
    if (flags & HAS_INCARNATION) site_put_u64(to, s->incarnations[g]);
    if (flags & IS_REPLACED) site_put_u64(to, s->replaced_by);
    if (flags & HAS_SENT) site_put_clock(to, s->acks[g]);
}

void site_put_state(const struct site *s, bool trail, struct buf *to)
{
    site_put_u8(to, STATE_VERSION);
    site_put_u8(to, s->gid);
    site_put_u8(to, s->torn);
    if (s->torn) site_put_clock(to, &s->torn_upto);
    site_put_u64(to, (u64)s->phys_ms);
    site_put_u64(to, s->hlc);
    site_put_clock(to, &s->clock);
    for (u32 g = 1; g < s->gids; g++) state_put_gid(s, (u8)g, to);
    site_put_u8(to, 0);
    site_put_u8(to, trail);
    if (trail) state_put_trail(s, to);
}

static void state_get_gids(struct site *s, struct site_reader *r)
{
    struct site_clock clock;
    for (u8 g; (g = site_get_u8(r)) != 0 && !r->bad;) {
        u8 flags = site_get_u8(r);
        site_know(s, g);
        if (flags & IS_MEMBER) s->members[g] = (struct site_member){true, site_get_dot(r)};
        if (flags & IS_FENCED) site_fence(s, g, site_get_varint(r));
        if (flags & HAS_INCARNATION) s->incarnations[g] = site_get_u64(r);
        if (flags & IS_REPLACED) s->replaced_by = site_get_u64(r);
        if (!(flags & HAS_SENT)) continue;
        site_get_clock(r, &clock);
        if (!s->acks[g]) s->acks[g] = mem_zalloc(sizeof clock);
        *s->acks[g] = clock;
    }
}

/* As if everything had come at once, at the first position. */
static void state_rough_trail(struct site *s)
{
    for (u32 g = 1; g < SITE_GIDS; g++)
        if (s->clock.seq[g]) site_add_step(s, (struct site_step){1, {s->clock.seq[g], (u8)g}});
}

static void state_get_trail(struct site *s, struct site_reader *r)
{
    u64 position = 0;
    for (u64 n = site_get_varint(r); n > 0 && !r->bad; n--) {
        position += site_get_varint(r);
        site_add_step(s, (struct site_step){position, site_get_dot(r)});
    }
    if (position > s->position) r->bad = true;
}

bool site_get_state(struct site *s, bytes state)
{
    struct site_reader r = site_reader_of(state);
    if (site_get_u8(&r) != STATE_VERSION || site_get_u8(&r) != s->gid) return false;
    s->torn = site_get_u8(&r) != 0;
    if (s->torn) site_get_clock(&r, &s->torn_upto);
    s->phys_ms = (i64)site_get_u64(&r);
    s->hlc = site_get_u64(&r);
    site_get_clock(&r, &s->clock);
    s->position = site_clock_sum(&s->clock);
    for (u32 g = 1; g < SITE_GIDS; g++)
        if (s->clock.seq[g]) site_know(s, (u8)g);
    state_get_gids(s, &r);
    if (site_get_u8(&r)) state_get_trail(s, &r);
    else state_rough_trail(s);
    return !r.bad && site_left(&r) == 0;
}
