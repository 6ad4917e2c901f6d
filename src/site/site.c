#include "site/site.h"

#include "base/alloc.h"
#include "base/log.h"
#include "site/room.h"

struct site_pending {
    struct site_dot dot;
    bool more;
    struct buf raw;
};

void site_init(struct site *s, struct engine *e, u32 databases, u8 gid)
{
    *s = (struct site){.e = e, .databases = databases, .gid = gid,
                       .max_skew_ms = SITE_MAX_SKEW_MS, .expire_delay_ms = SITE_EXPIRE_DELAY_MS,
                       .max_pending = SITE_PENDING_MAX};
    e->gid = gid;
    s->key.walks = &s->walks;
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

void site_follow_stamp(struct site *s, u64 stamp)
{
    if ((i64)(stamp >> 16) <= s->phys_ms + s->max_skew_ms) s->hlc = MAX(s->hlc, stamp);
    else s->refused_ahead++;
}

/* -- effects of our own ------------------------------------------------------------------------------ */

void site_commit(struct site *s)
{
    CHECK(!s->doubt); /* its number may be that of another effect */
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
    bool of_key = m->op == MOVE_TTL || m->op == MOVE_KEEP;
    return (of_key || m->op == MOVE_FIELD_TTL) && m->at_ms && m->at_ms <= site_now(s);
}

/* Expires what is past its deadline before a write is added. */
static void site_before(struct site *s, const struct site_effect *e)
{
    struct site_moves it = site_moves_of(e->moves);
    struct site_move m;
    bool timed = false; /* fields of the key that the last claim was about have deadlines */
    site_follow_stamp(s, e->stamp);
    while (site_moves_next(&it, &m)) {
        if (m.op == MOVE_CLAIM) timed = site_expire(s, m.db, m.name, NULL) && m.kind == TYPE_HASH;
        else if (UNLIKELY(timed) && (m.op == MOVE_PUT || m.op == MOVE_ADD) && m.kind == TYPE_HASH)
            site_expire_field(s, m.db, m.name, m.path);
    }
}

static void site_expire_late(struct site *s, const struct site_move *m, const struct site_late *late)
{
    struct buf field = {0};
    if (m->op != MOVE_FIELD_TTL) {
        site_expire(s, m->db, m->name, late);
        return;
    }
    site_put_bytes(&field, m->path);
    site_expire_fields(s, m->db, m->name, buf_bytes(&field), late);
    buf_release(&field);
}

/* A deadline that arrives late ends what its author saw. */
static void site_after_effect(struct site *s, const struct site_effect *e, const struct site_late *late)
{
    struct site_moves it = site_moves_of(e->moves);
    struct site_move m;
    while (site_moves_next(&it, &m))
        if (site_is_late(s, &m)) site_expire_late(s, &m, late);
}

/* Another site sends back an effect of ours that was lost. What it had seen was applied before. */
static void site_took_back(struct site *s, const struct site_effect *e)
{
    if (LIKELY(e->dot.gid != s->gid)) return;
    s->hlc = MAX(s->hlc, e->stamp);
    site_forget_reasserted(s, &e->context);
}

static void site_apply_remote(struct site *s, const struct site_effect *e)
{
    struct site_clock upto = e->context;
    upto.seq[e->dot.gid] = e->dot.seq;
    site_took_back(s, e);
    site_before(s, e);
    site_apply(s, e);
    site_after_effect(s, e, &(struct site_late){&e->dot, 1, &upto, false});
    site_hear(s, e->dot.gid, &upto);
    site_reassert(s);
}

/* Effects that must be applied together. They are parsed again for each step, so that a large piece needs no
 * more memory. */
static void site_apply_piece(struct site *s, const struct buf *raws, u32 n)
{
    struct site_effect e = {0};
    struct site_dot *dots = mem_alloc(n * sizeof *dots);
    const char *why;
    for (u32 i = 0; i < n && site_effect_parse(buf_bytes(&raws[i]), &e, &why); i++) {
        site_took_back(s, &e);
        site_before(s, &e);
        dots[i] = e.dot;
    }
    struct site_clock upto = e.context;
    upto.seq[e.dot.gid] = e.dot.seq;
    for (u32 i = 0; i < n && site_effect_parse(buf_bytes(&raws[i]), &e, &why); i++) site_apply(s, &e);
    for (u32 i = 0; i < n && site_effect_parse(buf_bytes(&raws[i]), &e, &why); i++)
        site_after_effect(s, &e, &(struct site_late){dots, n, &upto, true});
    site_hear(s, e.dot.gid, &upto);
    site_reassert(s);
    mem_free(dots);
}

/* -- effects that wait ----------------------------------------------------------------------------- */

static bool site_is_known(const struct site *s, struct site_dot dot)
{
    return site_covers(&s->clock, dot) || (s->fenced[dot.gid] && dot.seq > s->fence[dot.gid]);
}

static size_t site_pending_size(bytes raw) { return raw.n + sizeof(struct site_pending); }

static void site_drop_pending(struct site *s, u32 at, u32 n)
{
    for (u32 i = 0; i < n; i++) s->pending_bytes -= site_pending_size(buf_bytes(&s->pending[at + i].raw));
    memmove(&s->pending[at], &s->pending[at + n], (s->n_pending - at - n) * sizeof *s->pending);
    s->n_pending -= n;
}

static void site_forget_pending(struct site *s, u32 at)
{
    struct buf raw = s->pending[at].raw;
    site_drop_pending(s, at, 1);
    buf_release(&raw);
}

/* The number of effects in the piece that begins here; 0: some are missing. */
static u32 site_piece_length(const struct site *s, u32 at)
{
    u32 n = 1;
    for (; s->pending[at + n - 1].more && !PLANTED_SITE(s, PLANT_PARTS); n++) {
        struct site_dot next = {s->pending[at].dot.seq + n, s->pending[at].dot.gid};
        if (at + n == s->n_pending || !site_dot_eq(s->pending[at + n].dot, next)) return 0;
    }
    return n;
}

/* Takes the first piece that is ready, in the order of dots, and drops pieces that are not needed any more.
 * NULL: none. */
static struct buf *site_next_pending(struct site *s, u32 *n)
{
    struct site_effect e;
    const char *why;
    for (u32 i = 0; i < s->n_pending;) {
        if (site_is_known(s, s->pending[i].dot)) {
            site_forget_pending(s, i);
            continue;
        }
        *n = site_piece_length(s, i);
        if (*n && site_effect_parse(buf_bytes(&s->pending[i].raw), &e, &why) && site_ready_for(s, &e)) {
            struct buf *raws = mem_alloc(*n * sizeof *raws);
            for (u32 k = 0; k < *n; k++) raws[k] = s->pending[i + k].raw;
            site_drop_pending(s, i, *n);
            return raws;
        }
        i += MAX(*n, 1);
    }
    return NULL;
}

void site_apply_pending(struct site *s)
{
    struct buf *raws;
    u32 n;
    while ((raws = site_next_pending(s, &n))) {
        site_apply_piece(s, raws, n);
        for (u32 i = 0; i < n; i++) buf_release(&raws[i]);
        mem_free(raws);
    }
}

/* Where it is, or has to be. */
static u32 site_pending_at(const struct site *s, struct site_dot dot)
{
    u32 from = 0, to = s->n_pending;
    while (from < to) {
        u32 mid = (from + to) / 2;
        if (site_dot_cmp(s->pending[mid].dot, dot) < 0) from = mid + 1;
        else to = mid;
    }
    return from;
}

/* A site that has lost the end of its log may have made another effect with this number. Then the rest of the
 * piece that the old one was of will never come. */
static bool site_is_pending(struct site *s, u32 at, const struct site_effect *e)
{
    if (at == s->n_pending || !site_dot_eq(s->pending[at].dot, e->dot)) return false;
    if (bytes_eq(buf_bytes(&s->pending[at].raw), e->all)) return true;
    while (at < s->n_pending && s->pending[at].dot.gid == e->dot.gid) site_forget_pending(s, at);
    return false;
}

static void site_add_pending(struct site *s, const struct site_effect *e)
{
    u32 at = site_pending_at(s, e->dot);
    if (site_is_pending(s, at, e)) return;
    s->pending = site_room(s->pending, s->n_pending, &s->room_pending, sizeof *s->pending);
    memmove(&s->pending[at + 1], &s->pending[at], (s->n_pending++ - at) * sizeof *s->pending);
    s->pending[at] = (struct site_pending){.dot = e->dot, .more = e->more};
    buf_append_bytes(&s->pending[at].raw, e->all);
    s->pending_bytes += site_pending_size(e->all);
}

bool site_is_next_part(const struct site *s, struct site_dot dot)
{
    struct site_dot before = {dot.seq - 1, dot.gid};
    u32 at = site_pending_at(s, before);
    return at < s->n_pending && site_dot_eq(s->pending[at].dot, before) && s->pending[at].more;
}

/* Whether a piece may have waited for this effect only: the last part, when all come in order. */
static bool site_may_complete(const struct site *s, const struct site_effect *e)
{
    struct site_dot after = {e->dot.seq + 1, e->dot.gid};
    u32 at = site_pending_at(s, after);
    if (!e->more) return site_is_next_part(s, e->dot);
    return at < s->n_pending && site_dot_eq(s->pending[at].dot, after);
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

static enum site_outcome site_overflow(struct site *s)
{
    while (s->n_pending) site_forget_pending(s, s->n_pending - 1);
    return SITE_TOO_MUCH;
}

enum site_outcome site_receive_parsed(struct site *s, const struct site_effect *e, const char **why)
{
    if (site_is_known(s, e->dot)) return SITE_KNOWN;
    *why = "an effect of this site that it has never made";
    if (e->dot.gid == s->gid && !s->doubt) return SITE_REFUSED;
    *why = "a write to a database that this site does not have";
    if (!site_has_databases(s, e)) return SITE_REFUSED;
    if ((e->more && !PLANTED_SITE(s, PLANT_PARTS)) || !site_ready_for(s, e)) {
        *why = "more effects than site-pending-max-size wait for others: it needs a full sync";
        if (s->pending_bytes + site_pending_size(e->all) > s->max_pending) return site_overflow(s);
        site_add_pending(s, e);
        if (site_may_complete(s, e)) site_apply_pending(s);
        return site_covers(&s->clock, e->dot) ? SITE_APPLIED : SITE_WAITS;
    }
    site_apply_remote(s, e);
    site_apply_pending(s);
    return SITE_APPLIED;
}

enum site_outcome site_receive(struct site *s, bytes raw, const char **why)
{
    struct site_effect e;
    if (site_receive_fast(s, raw, &e)) return SITE_APPLIED;
    return site_effect_parse(raw, &e, why) ? site_receive_parsed(s, &e, why) : SITE_REFUSED;
}
