#include "exec/site_doubt.h"

#include "exec/site_row.h"

bool site_in_doubt(const struct region_site *rs)
{
    const struct site *s = &rs->capture.site;
    const struct region_site_was *was = &rs->was;
    bool others = false, rebooted = was->boot != rs->region->node->boot && !(was->flags & ROW_SYNCED);
    for (u32 g = 1; g < SITE_GIDS; g++) others |= s->members[g].in && g != s->gid;
    return s->replaced_by || (was->known && others && (rs->behind || rebooted));
}

void site_set_doubt(struct region_site *rs, bool on)
{
    struct node *n = rs->region->node;
    const char *before = region_site_doubt(rs->region);
    rs->capture.site.doubt = on;
    if (on && !n->deny_writes) n->deny_writes = region_site_doubt(rs->region);
    if (!on && before && n->deny_writes && strcmp(n->deny_writes, before) == 0) n->deny_writes = NULL;
}

static bool site_has_heard_all(const struct region_site *rs)
{
    for (u32 g = 1; g < SITE_GIDS; g++)
        if (region_site_waits_for(rs->region, (u8)g)) return false;
    return true;
}

bool region_site_may_take_in_doubt(const struct region *r, const struct site_link *l)
{
    return !r->site->capture.site.replaced_by && (l->state == LINK_HELLO || site_has_heard_all(r->site));
}

/* The doubt ends when all members have sent their clocks, and the site has all of its own effects that any of
 * them has. */
void site_look_at_doubt(struct region_site *rs)
{
    struct site *s = &rs->capture.site;
    if (s->replaced_by) {
        if (!s->doubt) site_set_doubt(rs, true);
        return;
    }
    if (LIKELY(!s->doubt) || s->clock.seq[s->gid] < s->doubt_upto || !site_has_heard_all(rs)) return;
    site_set_doubt(rs, false);
    site_reassert(s);
}

void region_site_trust(struct region *r)
{
    region_site_enter(r);
    site_set_doubt(r->site, false);
    site_reassert(region_site_of(r));
    region_site_leave(r);
}

void region_site_take_place(struct region *r, bool complete, u32 random)
{
    r->site->behind = !complete;
    r->site->was.boot = r->node->boot; /* it was that of another machine */
    site_take_place(region_site_of(r), random);
}

bool region_site_was_replica(const struct region *r) { return r->site->was.flags & ROW_FOLLOWS; }
