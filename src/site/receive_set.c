/* The fast path for effects of other sites: a SET, with or without a TTL, whose author had seen what is
 * stored under the name, which is nothing or another SET. It does what site_apply() would, and accepts no
 * other effects. */
#include "base/alloc.h"
#include "site/site.h"

/* The clock of an effect: only the gids in use. */
struct receive_clock {
    struct site_dot dots[SITE_GIDS];
    u32 n;
};

/* False: malformed, or it is not covered by `here`. */
static bool receive_get_clock(struct site_reader *r, const struct site_clock *here, struct receive_clock *c)
{
    u8 last = 0;
    c->n = site_get_u8(r);
    for (u32 i = 0; i < c->n; i++) {
        struct site_dot d = c->dots[i] = site_get_dot(r);
        if (d.gid <= last || d.seq == 0 || !site_covers(here, d)) return false;
        last = d.gid;
    }
    return !r->bad;
}

static u64 receive_seq(const struct receive_clock *c, u8 gid)
{
    u32 i = 0;
    while (i < c->n && c->dots[i].gid < gid) i++;
    return i < c->n && c->dots[i].gid == gid ? c->dots[i].seq : 0;
}

/* Whether it is the next effect of a member, and nothing special is in progress at this site. */
static bool receive_is_next(const struct site *s, struct site_dot dot)
{
    return dot.gid && dot.gid != s->gid && dot.seq == s->clock.seq[dot.gid] + 1 && s->members[dot.gid].in &&
           !s->fenced[dot.gid] && !s->torn && !s->walks;
}

/* Whether the key is as the author of the SET saw it. */
static bool receive_replaces(struct site *s, const struct receive_clock *context, struct key_ref *ref)
{
    bytes head;
    struct site_dot old;
    if (!s->e->ops->companion.head(s->e, ref, &head)) return !ref->entry;
    if (!ref->entry || ref->type != TYPE_STRING || !site_head_is_set(head, &old)) return false;
    return receive_seq(context, old.gid) >= old.seq || PLANTED_SITE(s, PLANT_FAST_RECEIVE);
}

/* The same as site_hear() with the clock of a site all of whose effects are here. */
static void receive_hear(struct site *s, struct site_dot dot, const struct receive_clock *context)
{
    if (!s->acks[dot.gid]) s->acks[dot.gid] = mem_zalloc(sizeof *s->acks[dot.gid]);
    u64 *acked = s->acks[dot.gid]->seq;
    for (u32 i = 0; i < context->n; i++)
        acked[context->dots[i].gid] = MAX(acked[context->dots[i].gid], context->dots[i].seq);
    acked[dot.gid] = MAX(acked[dot.gid], dot.seq);
}

static bool is_past(i64 deadline_ms, i64 now_ms) { return deadline_ms && deadline_ms <= now_ms; }

bool site_receive_set(struct site *s, bytes raw, struct site_effect *e)
{
    struct site_reader r = site_reader_of(raw);
    struct receive_clock context;
    struct site_set set;
    struct key_ref ref;
    char head[SITE_SET_HEAD_MAX];
    e->dot = site_get_dot(&r);
    e->stamp = site_get_u64(&r);
    if (r.bad || !receive_is_next(s, e->dot)) return false;
    if (!receive_get_clock(&r, &s->clock, &context)) return false;
    if (receive_seq(&context, e->dot.gid) != e->dot.seq - 1) return false;
    e->all = raw;
    e->moves = bytes_of(r.p, site_left(&r));
    e->more = false;
    if (!site_get_set(e->moves, &set) || set.db >= s->databases) return false;
    if (set.at_ms && !site_dot_eq(set.birth, e->dot)) return false;
    i64 now_ms = MAX(site_now(s), (i64)(e->stamp >> 16)); /* or less, if the stamp is too far ahead */
    s->e->ops->find(s->e, set.db, set.name, &ref);
    if (is_past(set.at_ms, now_ms) || (ref.entry && is_past(ref.deadline_ms, now_ms))) return false;
    if (!receive_replaces(s, &context, &ref)) return false;
    site_follow_stamp(s, e->stamp);
    if (s->emit) s->emit(s->emit_arg, e);
    s->e->ops->str.put(s->e, set.db, set.name, &ref, set.value, set.at_ms);
    s->e->ops->companion.set_head(s->e, &ref, site_set_head(head, e->dot, e->stamp, set.at_ms != 0));
    site_note_applied(s, e->dot);
    receive_hear(s, e->dot, &context);
    if (s->n_pending) site_apply_pending(s);
    return true;
}
