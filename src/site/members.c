/* Members, which effects they have, and so which effects all of them have. */
#include "base/alloc.h"
#include "site/site.h"
#include "site/write.h"

#define TRAIL_MAX 65536 /* steps; beyond that the older half is told less exactly */

void site_found(struct site *s, const u8 *gids, u32 n)
{
    for (u32 i = 0; i < n; i++) {
        site_know(s, gids[i]);
        s->members[gids[i]] = (struct site_member){true, {0, gids[i]}};
    }
    s->n_everywhere = 0;
}

void site_admit(struct site *s, u8 gid)
{
    site_put_move(&s->moves, &(struct site_move){.op = MOVE_JOIN, .gid = gid}, false);
    site_commit(s);
}

void site_evict(struct site *s, u8 gid)
{
    site_put_move(&s->moves, &(struct site_move){.op = MOVE_EVICT, .gid = gid}, false);
    site_commit(s);
}

/* A site that was admitted by the same member, but later, and has not started yet: any site that sends it a
 * snapshot knows both, so it will know gid before it writes. Without this rule two sites that join at the
 * same time would wait for each other. */
static bool starts_later(const struct site *s, u8 g, u8 gid)
{
    struct site_dot a = s->members[gid].dot, b = s->members[g].dot;
    bool started = s->acks[g] && site_covers(s->acks[g], b);
    return !started && a.gid == b.gid && a.seq < b.seq;
}

bool site_may_start(const struct site *s, u8 gid)
{
    for (u32 g = 1; g < SITE_GIDS; g++) {
        if (!s->members[g].in || g == s->gid || g == gid || starts_later(s, (u8)g, gid)) continue;
        if (!s->acks[g] || !site_covers(s->acks[g], s->members[gid].dot)) return false;
    }
    return true;
}

void site_fence(struct site *s, u8 gid, u64 seq)
{
    site_know(s, gid);
    s->fenced[gid] = true;
    s->fence[gid] = seq;
}

bool site_meet(struct site *s, u8 gid, u64 incarnation)
{
    if (incarnation < s->incarnations[gid]) return false;
    if (incarnation == s->incarnations[gid]) return true;
    s->incarnations[gid] = incarnation;
    s->met++;
    return true;
}

void site_met_other_self(struct site *s, u64 incarnation)
{
    if (incarnation <= MAX(s->incarnations[s->gid], s->replaced_by)) return;
    s->replaced_by = incarnation;
    s->met++;
}

/* The upper half is a counter. The lower half distinguishes two servers that replace the same one. */
void site_take_place(struct site *s, u32 random)
{
    s->incarnations[s->gid] = (((s->incarnations[s->gid] >> 32) + 1) & INT32_MAX) << 32 | random;
}

bool site_knows_us(struct site *s, const struct site_clock *clock)
{
    u64 n = clock->seq[s->gid];
    if (LIKELY(n <= s->clock.seq[s->gid])) return true;
    if (s->doubt) s->doubt_upto = MAX(s->doubt_upto, n);
    return s->doubt;
}

/* A clock counts only when all of its site's own effects are here: it may have made one before it saw
 * the rest. */
void site_hear(struct site *s, u8 gid, const struct site_clock *clock)
{
    if (!s->members[gid].in || gid == s->gid) return;
    if (s->clock.seq[gid] < clock->seq[gid] && !PLANTED_SITE(s, PLANT_EARLY_CLOCK)) return;
    site_know(s, gid);
    if (!s->acks[gid]) s->acks[gid] = mem_zalloc(sizeof *clock);
    site_clock_join(s->acks[gid], clock);
}

/* -- the trail ---------------------------------------------------------------------------------------- */

/* Merges the older half into one step per site, as if all its effects had arrived at the first one's
 * position. This only delays the collection of their garbage. */
static void site_shorten_trail(struct site *s)
{
    u32 half = s->n_trail / 2, n = 0;
    u64 first = s->trail[0].position;
    struct site_clock most = {0};
    for (u32 i = 0; i < half; i++) {
        struct site_dot d = s->trail[i].dot;
        most.seq[d.gid] = MAX(most.seq[d.gid], d.seq);
    }
    for (u32 g = 1; g < SITE_GIDS; g++)
        if (most.seq[g]) s->trail[n++] = (struct site_step){first, {most.seq[g], (u8)g}};
    memmove(&s->trail[n], &s->trail[half], (s->n_trail - half) * sizeof *s->trail);
    s->n_trail -= half - n;
    s->n_everywhere = 0;
}

void site_add_step(struct site *s, struct site_step step)
{
    if (s->n_trail == TRAIL_MAX) site_shorten_trail(s);
    if (s->n_trail == s->room_trail) {
        s->room_trail = s->room_trail ? s->room_trail * 2 : 16;
        s->trail = mem_realloc(s->trail, s->room_trail * sizeof *s->trail);
    }
    s->trail[s->n_trail++] = step;
}

void site_note_applied(struct site *s, struct site_dot dot)
{
    site_know(s, dot.gid);
    s->position += dot.seq - s->clock.seq[dot.gid];
    s->clock.seq[dot.gid] = dot.seq;
    site_add_step(s, (struct site_step){s->position, dot});
}

void site_note_merged(struct site *s, const struct site_clock *theirs)
{
    struct site_clock before = s->clock;
    site_clock_join(&s->clock, theirs);
    s->position = site_clock_sum(&s->clock);
    for (u32 g = 1; g < SITE_GIDS; g++)
        if (s->clock.seq[g] > before.seq[g]) {
            site_know(s, (u8)g);
            site_add_step(s, (struct site_step){s->position, {s->clock.seq[g], (u8)g}});
        }
}

/* The effects that all other members are known to have. False: a member has not sent its clock yet. */
static bool site_least_acked(const struct site *s, struct site_clock *least)
{
    memset(least, 0xff, s->gids * sizeof *least->seq);
    for (u32 g = 1; g < s->gids; g++) {
        if (!s->members[g].in || g == s->gid) continue;
        if (!s->acks[g]) return false;
        for (u32 i = 0; i < s->gids; i++) least->seq[i] = MIN(least->seq[i], s->acks[g]->seq[i]);
    }
    return true;
}

/* What a member has only grows. */
void site_find_stable(struct site *s)
{
    struct site_clock least;
    bool all = site_least_acked(s, &least);
    u32 i = all ? s->n_everywhere : 0;
    if (PLANTED_SITE(s, PLANT_EARLY_GARBAGE)) i = s->n_trail;
    while (all && i < s->n_trail && site_covers(&least, s->trail[i].dot)) i++;
    s->n_everywhere = i;
    s->stable = i < s->n_trail ? s->trail[i].position - 1 : s->position;
}
