#include "site/site.h"

#include "base/alloc.h"
#include "base/log.h"
#include "site/room.h"

struct site_pending {
    struct site_dot dot;
    struct buf raw;
};

void site_init(struct site *s, struct engine *e, u32 databases, u8 gid)
{
    *s = (struct site){.e = e, .databases = databases, .gid = gid};
}

void site_release(struct site *s)
{
    while (s->n_pending) buf_release(&s->pending[--s->n_pending].raw);
    site_forget_after(s);
    for (u32 g = 0; g < SITE_GIDS; g++) mem_free(s->acks[g]);
    mem_free(s->pending);
    mem_free(s->after);
    mem_free(s->trail);
    site_key_release(&s->key);
    site_cell_release(&s->cell);
    buf_release(&s->moves);
    buf_release(&s->recent);
    *s = (struct site){0};
}

/* -- time ------------------------------------------------------------------------------------------ */

void site_tick(struct site *s, i64 wall_ms)
{
    s->phys_ms = MAX(s->phys_ms, wall_ms);
    buf_clear(&s->recent);
}

i64 site_now(const struct site *s) { return MAX(s->phys_ms, (i64)(s->hlc >> 16)); }

struct site_dot site_next_dot(const struct site *s)
{
    return (struct site_dot){s->clock.seq[s->gid] + 1, s->gid};
}

u64 site_next_stamp(const struct site *s) { return MAX(s->hlc + 1, (u64)s->phys_ms << 16); }

static void site_follow_stamp(struct site *s, u64 stamp)
{
    if ((i64)(stamp >> 16) <= s->phys_ms + SITE_MAX_SKEW_MS) s->hlc = MAX(s->hlc, stamp);
    else s->refused_ahead++;
}

/* -- effects of our own ------------------------------------------------------------------------------ */

void site_commit(struct site *s)
{
    struct site_effect e = {.dot = site_next_dot(s), .stamp = site_next_stamp(s), .context = s->clock};
    struct buf raw = {0};
    site_put_effect_head(&raw, e.dot, e.stamp, &e.context);
    size_t head = raw.n;
    buf_append_bytes(&raw, buf_bytes(&s->moves));
    buf_clear(&s->moves);
    e.all = buf_bytes(&raw);
    e.moves = bytes_of(raw.p + head, raw.n - head);
    s->hlc = e.stamp;
    site_apply(s, &e);
    buf_release(&raw);
}

/* -- effects of others ------------------------------------------------------------------------------- */

static bool site_ready_for(const struct site *s, const struct site_effect *e)
{
    if (s->clock.seq[e->dot.gid] != e->dot.seq - 1) return false;
    return PLANTED_SITE(s, PLANT_FIFO) || site_clock_covers(&s->clock, &e->context);
}

static bool site_is_late(const struct site *s, const struct site_move *m)
{
    return (m->op == MOVE_TTL || m->op == MOVE_KEEP) && m->at_ms && m->at_ms <= site_now(s);
}

/* What is past its deadline dies before a write joins it; a deadline that comes too late ends what its
 * author saw. */
static void site_apply_remote(struct site *s, const struct site_effect *e)
{
    struct site_clock upto = e->context;
    struct site_late late = {&e->dot, 1, &upto};
    struct site_moves it = site_moves_of(e->moves);
    struct site_move m;
    upto.seq[e->dot.gid] = e->dot.seq;
    site_follow_stamp(s, e->stamp);
    while (site_moves_next(&it, &m))
        if (m.op == MOVE_CLAIM) site_expire(s, m.db, m.name, NULL);
    site_apply(s, e);
    it = site_moves_of(e->moves);
    while (site_moves_next(&it, &m))
        if (site_is_late(s, &m)) site_expire(s, m.db, m.name, &late);
    site_hear(s, e->dot.gid, &upto);
    site_reassert(s);
}

static bool site_is_known(const struct site *s, struct site_dot dot)
{
    return site_covers(&s->clock, dot) || (s->fenced[dot.gid] && dot.seq > s->fence[dot.gid]);
}

static void site_drop_pending(struct site *s, u32 at)
{
    buf_release(&s->pending[at].raw);
    memmove(&s->pending[at], &s->pending[at + 1], (--s->n_pending - at) * sizeof *s->pending);
}

/* The first in the order of dots that is ready; those that are not needed any more are dropped. */
static bool site_next_pending(struct site *s, struct site_effect *e, struct buf *raw)
{
    const char *why;
    for (u32 i = 0; i < s->n_pending;) {
        if (site_is_known(s, s->pending[i].dot)) {
            site_drop_pending(s, i);
            continue;
        }
        if (site_effect_parse(buf_bytes(&s->pending[i].raw), e, &why) && site_ready_for(s, e)) {
            *raw = s->pending[i].raw;
            s->pending[i].raw = (struct buf){0};
            site_drop_pending(s, i);
            return true;
        }
        i++;
    }
    return false;
}

void site_apply_pending(struct site *s)
{
    struct site_effect e;
    struct buf raw;
    while (site_next_pending(s, &e, &raw)) {
        site_apply_remote(s, &e);
        buf_release(&raw);
    }
}

static void site_add_pending(struct site *s, const struct site_effect *e)
{
    u32 at = 0;
    while (at < s->n_pending && site_dot_cmp(s->pending[at].dot, e->dot) < 0) at++;
    if (at < s->n_pending && site_dot_eq(s->pending[at].dot, e->dot)) return;
    s->pending = site_room(s->pending, s->n_pending, &s->room_pending, sizeof *s->pending);
    memmove(&s->pending[at + 1], &s->pending[at], (s->n_pending++ - at) * sizeof *s->pending);
    s->pending[at] = (struct site_pending){.dot = e->dot};
    buf_append_bytes(&s->pending[at].raw, e->all);
}

static bool site_has_databases(const struct site *s, const struct site_effect *e)
{
    struct site_moves it = site_moves_of(e->moves);
    struct site_move m;
    while (site_moves_next(&it, &m))
        if (m.op < MOVE_JOIN && m.db >= s->databases && !(m.op == MOVE_FLUSH && m.db == SITE_ALL_DBS))
            return false;
    return true;
}

enum site_outcome site_receive(struct site *s, bytes raw, const char **why)
{
    struct site_effect e;
    if (!site_effect_parse(raw, &e, why)) return SITE_REFUSED;
    if (site_is_known(s, e.dot)) return SITE_KNOWN;
    *why = "an effect of this site that it has never made";
    if (e.dot.gid == s->gid) return SITE_REFUSED;
    *why = "a write to a database that this site does not have";
    if (!site_has_databases(s, &e)) return SITE_REFUSED;
    if (!site_ready_for(s, &e)) {
        *why = "too many effects that wait for others";
        if (s->n_pending >= SITE_PENDING_MAX) return SITE_REFUSED;
        site_add_pending(s, &e);
        return SITE_WAITS;
    }
    site_apply_remote(s, &e);
    site_apply_pending(s);
    return SITE_APPLIED;
}
