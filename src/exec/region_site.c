#include "exec/region_site.h"

#include "exec/site_adopt.h"
#include "exec/site_doubt.h"
#include "exec/site_row.h"
#include "site/state.h"

#define STEP_KEYS 32
#define LOOK_AGAIN_MS 10 /* for keys that others are to delete, where the engine offers them again */

/* State that a failed commit restores. Clocks that others have sent (acks), stamps and the time are kept,
 * because they are still true. */
struct site_saved {
    struct site_clock clock;
    u64 position;
    u32 gids; /* of these arrays so much is used */
    struct site_member members[SITE_GIDS];
    u64 fence[SITE_GIDS];
    bool fenced[SITE_GIDS];
    u32 n_trail;
    struct site_step last; /* of the trail */
};

/* -- taking back ----------------------------------------------------------------------------------- */

static void site_save_once(struct region_site *rs)
{
    const struct site *s = &rs->capture.site;
    u32 n = s->gids;
    if (rs->saving) return;
    if (!rs->saved) rs->saved = mem_alloc(sizeof *rs->saved);
    struct site_saved *to = rs->saved;
    to->gids = n;
    memcpy(to->clock.seq, s->clock.seq, n * sizeof *s->clock.seq);
    to->position = s->position;
    memcpy(to->members, s->members, n * sizeof *s->members);
    memcpy(to->fence, s->fence, n * sizeof *s->fence);
    memcpy(to->fenced, s->fenced, n * sizeof *s->fenced);
    to->n_trail = s->n_trail;
    to->last = s->n_trail ? s->trail[s->n_trail - 1] : (struct site_step){0};
    rs->saving = true;
}

/* If the trail was thinned out meanwhile, its effects count as having arrived together: this delays garbage
 * collection a little. */
static void saved_trail_back(struct site *s, const struct site_saved *from)
{
    u32 n = from->n_trail;
    bool same = n <= s->n_trail && (n == 0 || (s->trail[n - 1].position == from->last.position &&
                                               site_dot_eq(s->trail[n - 1].dot, from->last.dot)));
    s->n_trail = same ? n : 0;
    s->n_everywhere = 0;
    for (u32 g = 1; g < SITE_GIDS && !same; g++)
        if (s->clock.seq[g]) site_add_step(s, (struct site_step){1, {s->clock.seq[g], (u8)g}});
}

static void site_take_back(struct region_site *rs)
{
    struct site *s = &rs->capture.site;
    const struct site_saved *from = rs->saved;
    u32 n = from->gids;
    memset(&s->clock, 0, sizeof s->clock);
    memset(s->members, 0, sizeof s->members);
    memset(s->fence, 0, sizeof s->fence);
    memset(s->fenced, 0, sizeof s->fenced);
    memcpy(s->clock.seq, from->clock.seq, n * sizeof *s->clock.seq);
    memcpy(s->members, from->members, n * sizeof *s->members);
    memcpy(s->fence, from->fence, n * sizeof *s->fence);
    memcpy(s->fenced, from->fenced, n * sizeof *s->fenced);
    s->position = from->position;
    saved_trail_back(s, from);
    buf_clear(&s->moves);
    buf_clear(&s->recent);
    site_forget_after(s);
}

/* -- effects --------------------------------------------------------------------------------------- */

static bool effect_is_of_members(const struct site_effect *e)
{
    enum site_op op = e->moves.n ? site_first_op(e->moves) : 0;
    return op == MOVE_JOIN || op == MOVE_EVICT;
}

/* site.emit: called before the effect counts as applied. */
static void region_site_emit(void *arg, const struct site_effect *e)
{
    struct region_site *rs = arg;
    site_backlog_gather(&rs->made, e->dot, e->all);
    if (journal_wanted(&rs->region->journal)) site_log_applied(&rs->log, e->dot, e->stamp);
    else journal_changed(&rs->region->journal);
    rs->emitted++;
    rs->state_changed = true;
    rs->state_logged |= effect_is_of_members(e);
}

/* -- a tick ---------------------------------------------------------------------------------------- */

i64 region_site_begin(struct region *r, i64 wall_ms)
{
    struct region_site *rs = r->site;
    if (rs->follows) return wall_ms;
    site_save_once(rs);
    site_tick(&rs->capture.site, wall_ms);
    return site_now(&rs->capture.site);
}

static void log_into_journal(struct region_site *rs)
{
    struct journal *j = &rs->region->journal;
    bytes argv[] = {BYTES_LIT("ECHO"), buf_bytes(&rs->log.ops)};
    if (rs->log.ops.n == 0) return;
    if (!rs->region->doomed) journal_effect(j, j->db < 0 ? 0 : (u32)j->db, 2, argv);
    site_log_clear(&rs->log);
}

void region_site_ran(struct region *r)
{
    struct region_site *rs = r->site;
    struct site *s = &rs->capture.site;
    rs->told_event = NULL;
    if (rs->follows) return;
    if (!r->doomed) site_capture_end(&rs->capture);
    if (rs->state_logged && !r->doomed) {
        struct buf row = {0};
        site_row_put(rs, 0, 0, false, &row);
        site_log_state(&rs->log, buf_bytes(&row));
        buf_release(&row);
        rs->state_logged = false;
    }
    log_into_journal(rs);
    if (site_now(s) > r->ks.now_ms) region_advance(r, site_now(s));
}

void region_site_store(struct region *r)
{
    struct region_site *rs = r->site;
    if (r->doomed || !rs->state_changed) return;
    site_row_write(rs, rs->becoming ? ROW_BECOMING : 0, rs->becoming);
}

void region_site_settle(struct region *r, bool kept)
{
    struct region_site *rs = r->site;
    bool changed = rs->state_changed;
    if (kept) {
        site_backlog_add(&rs->backlog, &rs->made);
        rs->state_changed = false;
    } else {
        if (!rs->follows) site_capture_end(&rs->capture); /* what it has begun is dropped */
        if (rs->saving) site_take_back(rs);
        if (!rs->follows) {
            site_capture_pause(&rs->capture, &rs->tables.logged); /* it notices that the clock is another */
            site_capture_resume(&rs->capture);
        }
        rs->lost++;
        site_log_clear(&rs->log);
    }
    if (kept && changed) rs->saving = false; /* otherwise it is as it was saved */
    site_save_once(rs);
    buf_clear(&rs->made);
}

/* Changes whenever the state's information about being torn does. */
static u64 site_torn(const struct site *s)
{
    return LIKELY(!s->torn) ? 0 : 1 + site_clock_sum(&s->torn_upto);
}

void region_site_enter(struct region *r)
{
    struct region_site *rs = r->site;
    site_capture_pause(&rs->capture, &rs->tables.told);
    rs->entered_torn = site_torn(&rs->capture.site);
    rs->entered_met = rs->capture.site.met;
    rs->entered = rs->capture.site.position - rs->emitted;
}

/* If the clock has advanced without effects, a full sync was merged. The beginning of a merge must be stored
 * before its first key: a site that stops during it has keys that its clock does not cover. */
void region_site_leave(struct region *r)
{
    struct region_site *rs = r->site;
    const struct site *s = &rs->capture.site;
    if (s->position - rs->emitted != rs->entered || site_torn(s) != rs->entered_torn ||
        s->met != rs->entered_met)
        rs->state_changed = rs->state_logged = true;
    site_tables_tell_whole(rs);
    site_capture_resume(&rs->capture);
    region_end_record(r);
}

/* -- links and members ----------------------------------------------------------------------------- */

bool region_site_take(struct region *r, struct site_link *l, const bytes *argv, u32 argc, struct buf *out)
{
    struct region_site *rs = r->site;
    region_site_enter(r);
    bool greeted = l->serves && l->state == LINK_HELLO; /* it knows our incarnation when it has the answer */
    bool on = site_link_take(l, argv, argc, out);
    rs->heard[l->peer] |= on && !greeted && (l->state == LINK_STREAM || l->state == LINK_FULL);
    if (UNLIKELY(rs->capture.site.doubt || rs->capture.site.replaced_by)) site_look_at_doubt(rs);
    region_site_leave(r);
    return on && !r->doomed;
}

void region_site_found(struct region *r, const u8 *gids, u32 n)
{
    struct region_site *rs = r->site;
    region_site_enter(r);
    site_found(&rs->capture.site, gids, n);
    rs->state_changed = rs->state_logged = true;
    rs->fresh = false;
    region_site_leave(r);
}

void region_site_unfound(struct region *r)
{
    struct region_site *rs = r->site;
    struct site *s = &rs->capture.site;
    region_site_enter(r);
    s->members[s->gid].in = false;
    rs->state_changed = rs->state_logged = true;
    region_site_leave(r);
}

void region_site_admit(struct region *r, u8 gid)
{
    region_site_enter(r);
    site_admit(region_site_of(r), gid);
    region_site_leave(r);
}

void region_site_evict(struct region *r, u8 gid)
{
    region_site_enter(r);
    site_evict(region_site_of(r), gid);
    region_site_leave(r);
}

void region_site_fence(struct region *r, u8 gid, u64 seq)
{
    struct region_site *rs = r->site;
    region_site_enter(r);
    site_fence(&rs->capture.site, gid, seq);
    rs->state_changed = rs->state_logged = true;
    region_site_leave(r);
}

/* -- garbage --------------------------------------------------------------------------------------- */

bool region_site_collect(struct region *r, u32 count)
{
    struct region_site *rs = r->site;
    struct site *s = &rs->capture.site;
    if (s->torn || s->walks) return false; /* a full sync */
    region_site_enter(r);
    site_find_stable(s);
    bool more = site_collect_some(s, rs->place_db, &rs->place, count);
    region_site_leave(r);
    if (more) return true;
    buf_clear(&rs->place);
    rs->place_db = (rs->place_db + 1) % s->databases;
    return rs->place_db != 0;
}

/* -- expiry ---------------------------------------------------------------------------------------- */

/* A key that another site is to delete waits here for site_expire_pass to delete it after all. */
static void late_add(struct region_site *rs, i64 at_ms, u32 db, bytes name)
{
    site_put_u64(&rs->late, (u64)at_ms);
    site_put_varint(&rs->late, db);
    site_put_bytes(&rs->late, name);
}

static bool late_first(const struct region_site *rs, i64 *at_ms, u32 *db, bytes *name, size_t *next)
{
    struct site_reader r = {rs->late.p + rs->late_at, rs->late.p + rs->late.n, false};
    if (rs->late_at == rs->late.n) return false;
    *at_ms = (i64)site_get_u64(&r);
    *db = (u32)site_get_varint(&r);
    *name = site_get_bytes(&r);
    *next = (size_t)(r.p - rs->late.p);
    return true;
}

static bool late_full(const struct region_site *rs)
{
    return rs->late.n - rs->late_at > REGION_SITE_LATE_MAX;
}

static void late_shrink(struct region_site *rs)
{
    size_t left = rs->late.n - rs->late_at;
    if (rs->late_at <= left) return;
    memmove(rs->late.p, rs->late.p + rs->late_at, left);
    rs->late.n = left;
    rs->late_at = 0;
    if (left == 0) buf_release(&rs->late);
}

/* Keys whose delay is over. */
static u32 expire_late(struct region_site *rs)
{
    i64 at_ms;
    bytes name;
    size_t next;
    u32 db, n = 0;
    for (; n < STEP_KEYS && late_first(rs, &at_ms, &db, &name, &next); n++) {
        if (at_ms > site_now(&rs->capture.site)) break;
        site_expire_pass(&rs->capture.site, db, name);
        rs->late_at = next;
    }
    late_shrink(rs);
    return n;
}

static void expire_offered(void *arg, struct key_ref *ref)
{
    struct buf *names = arg;
    site_put_varint(names, ref->db);
    site_put_bytes(names, ref->key);
}

static void expire_first_field(void *arg, bytes field UNUSED, bytes value UNUSED, double deadline_ms)
{
    *(i64 *)arg = (i64)deadline_ms;
}

/* Whether fields are due that another site is to delete, and the first one's deadline. If not, the engine
 * files the hash again, of which no field may have changed. */
static bool expire_has_field(struct region_site *rs, struct key_ref *ref, i64 *due_ms)
{
    struct engine *e = rs->region->eng;
    const struct map_ops *map = &rs->tables.engine->map;
    if (ref->type != TYPE_HASH || !map->has_field_deadlines(e, ref)) return false;
    if (map->due(e, ref, rs->region->ks.now_ms, 1, expire_first_field, due_ms)) return true;
    map->reap(e, ref, 0, NULL, NULL);
    return false;
}

/* The engine offers a key again, or we remember it. */
static void expire_one(struct region_site *rs, u32 db, bytes name, u32 *left_alone)
{
    struct engine *e = rs->region->eng;
    struct key_ref ref;
    u64 before = rs->capture.site.position;
    site_expire_pass(&rs->capture.site, db, name);
    if (!e->ops->find(e, db, name, &ref)) return;
    i64 due_ms = ref.deadline_ms;
    if (alive(due_ms, rs->region->ks.now_ms)) {
        bool changed = rs->capture.site.position > before; /* then the engine has filed the hash again */
        if (changed || !expire_has_field(rs, &ref, &due_ms)) return;
    }
    ++*left_alone;
    if (!e->caps.due_again) late_add(rs, due_ms + rs->capture.site.expire_delay_ms, db, name);
}

static u32 expire_due(struct region_site *rs, u32 *left_alone)
{
    struct engine *e = rs->region->eng;
    struct buf names = {0};
    u32 n = e->ops->due(e, rs->region->ks.now_ms, STEP_KEYS, expire_offered, &names);
    for (struct site_reader r = site_reader_of(buf_bytes(&names)); site_left(&r);) {
        u32 db = (u32)site_get_varint(&r);
        expire_one(rs, db, site_get_bytes(&r), left_alone);
    }
    buf_release(&names);
    return n;
}

static bool expire_rests(const struct region_site *rs)
{
    return rs->capture.site.torn || rs->capture.site.doubt;
}

bool region_site_expire_step(struct region *r)
{
    struct region_site *rs = r->site;
    u32 left_alone = 0, late, offered = 0;
    if (r->mode != EXPIRY_SITE || expire_rests(rs)) return false;
    region_site_enter(r);
    late = expire_late(rs);
    if (!late_full(rs)) offered = expire_due(rs, &left_alone);
    region_site_leave(r);
    bool stuck = r->eng->caps.due_again && left_alone == offered && offered > 0;
    rs->look_ms = stuck ? r->ks.now_ms + LOOK_AGAIN_MS : 0;
    return !r->doomed && !stuck && (late > 0 || offered > 0);
}

i64 region_site_next_due(const struct region *r)
{
    const struct region_site *rs = r->site;
    if (expire_rests(rs)) return INT64_MAX;
    i64 due_ms = late_full(rs) ? INT64_MAX : r->eng->ops->next_due(r->eng), at_ms;
    bytes name;
    size_t next;
    u32 db;
    if (due_ms != INT64_MAX) due_ms = MAX(due_ms, rs->look_ms);
    return late_first(rs, &at_ms, &db, &name, &next) ? MIN(due_ms, at_ms) : due_ms;
}

/* -- logs of others -------------------------------------------------------------------------------- */

static void follow_applied(void *arg, struct site_dot dot, u64 stamp)
{
    struct region_site *rs = arg;
    struct site *s = &rs->capture.site;
    site_save_once(rs);
    s->hlc = MAX(s->hlc, stamp);
    if (!site_covers(&s->clock, dot)) site_note_applied(s, dot);
    rs->state_changed = true;
}

/* State of the process, not of the data: configured limits, and statistics. */
static void site_keep(struct site *s, const struct site *before)
{
    s->max_skew_ms = before->max_skew_ms;
    s->expire_delay_ms = before->expire_delay_ms;
    s->max_pending = before->max_pending;
    s->stats = before->stats;
    s->refused_ahead = before->refused_ahead;
}

static void site_again(struct site *s)
{
    struct site before = *s;
    site_release(s);
    site_init(s, before.e, before.databases, before.gid);
    site_keep(s, &before);
}

/* The process that wrote this row was, or is, the site; `boot` and `flags` are its. */
static bool follow_adopt(struct region_site *rs, const struct site_row *row)
{
    struct site *s = &rs->capture.site;
    site_again(s);
    rs->was = (struct region_site_was){
        .known = true, .flags = row->flags, .boot = row->boot, .stamp = row->stamp};
    return site_row_gid(row) == s->gid && site_get_state(s, row->state);
}

static bool follow_state(void *arg, bytes raw)
{
    struct region_site *rs = arg;
    struct site_row row;
    if (raw.n == 0 && !rs->region->obeys) {
        region_site_emptied(rs->region);
        return true;
    }
    site_save_once(rs);
    rs->state_changed = true;
    rs->marked = false;
    return site_row_get(raw, &row) && follow_adopt(rs, &row);
}

static bool follow_stage(void *arg, bytes raw)
{
    struct region_site *rs = arg;
    buf_clear(&rs->staged);
    buf_append_bytes(&rs->staged, raw);
    return true;
}

/* Without a site to follow, only whose it is. */
static void ignore_applied(void *arg UNUSED, struct site_dot dot UNUSED, u64 stamp UNUSED) {}

static bool note_whose(void *arg, bytes raw)
{
    struct region *r = arg;
    struct site_row row;
    if (raw.n == 0) r->site_was = 0;
    else if (site_row_get(raw, &row)) r->site_was = site_row_gid(&row);
    return true;
}

static const struct site_log_taker *log_taker(struct region *r, u32 db_base, struct site_log_taker *t)
{
    struct region_site *rs = r->site;
    if (!rs || !rs->follows) *t = (struct site_log_taker){ignore_applied, note_whose, r};
    else if (db_base) *t = (struct site_log_taker){ignore_applied, follow_stage, rs};
    else *t = (struct site_log_taker){follow_applied, follow_state, rs};
    return t;
}

static void follow_journal(struct region_site *rs, bytes log)
{
    struct journal *j = &rs->region->journal;
    journal_effect(j, j->db < 0 ? 0 : (u32)j->db, 2, (bytes[]){BYTES_LIT("ECHO"), log});
}

/* A start from our own AOF has to know that it is a replica's, after each state of the primary in it. */
static void follow_mark(struct region_site *rs)
{
    struct site_log mark = {0};
    rs->marked = true;
    region_site_put_state(rs->region, &mark);
    if (mark.ops.n) follow_journal(rs, buf_bytes(&mark.ops));
    site_log_release(&mark);
}

bool region_site_take_log(struct region *r, bytes log, u32 db_base)
{
    struct region_site *rs = r->site;
    struct site_log_taker taker;
    bool follows = rs && rs->follows;
    if (!site_log_take(log, follows ? r->eng : NULL, db_base, log_taker(r, db_base, &taker))) {
        if (follows) rs->mismatch = true; /* such as the state of another site */
        return false;
    }
    if (!follows || db_base) return true;
    if (!r->obeys) return true;
    follow_journal(rs, log);
    if (!rs->marked) follow_mark(rs);
    return true;
}

void region_site_put_state(struct region *r, struct site_log *l)
{
    struct buf row = {0};
    if (!r->site || (r->site->follows && !r->site->was.known)) return;
    site_row_put(r->site, 0, 0, false, &row);
    site_log_state(l, buf_bytes(&row));
    buf_release(&row);
}

void region_site_loaded_old(struct region *r)
{
    if (r->site) r->site->behind = true;
}

/* The stored state is of data that is gone. */
static void region_site_emptied_row(struct region_site *rs)
{
    site_row_delete(rs->region->eng);
}

void region_site_adopt_staged(struct region *r, bool adopted)
{
    struct region_site *rs = r->site;
    if (!rs) return;
    if (adopted && rs->follows) {
        struct site_row row;
        region_site_emptied(r);
        bool ok = site_row_get(buf_bytes(&rs->staged), &row) && follow_adopt(rs, &row);
        rs->mismatch = rs->staged.n > 0 && !ok;
        if (!ok) region_site_emptied_row(rs);
        rs->state_changed = ok;
        rs->behind = true;
    }
    buf_release(&rs->staged);
}

void region_site_emptied(struct region *r)
{
    struct region_site *rs = r->site;
    if (!rs || !rs->follows) return;
    site_again(&rs->capture.site);
    rs->was = (struct region_site_was){0};
    rs->saving = rs->mismatch = false;
}

/* -- its life -------------------------------------------------------------------------------------- */

static struct region_site *region_site_new(struct region *r, u8 gid)
{
    struct region_site *rs = mem_zalloc(sizeof *rs);
    rs->region = r;
    rs->follows = true;
    site_tables_init(&rs->tables, r->eng->ops);
    r->eng->ops = &rs->tables.kept;
    r->eng->site = rs;
    site_init(&rs->capture.site, r->eng, r->eng->databases, gid);
    r->expiry_stream.ends |= RECORD_ENDS_SITE;
    return r->site = rs;
}

/* A site stops being one. Links still have its address, which stays. */
static void site_stop(struct region_site *rs)
{
    struct site before = rs->capture.site;
    struct engine *e = rs->region->eng;
    struct buf state = {0};
    u8 gid = rs->capture.site.gid;
    site_put_state(&rs->capture.site, true, &state);
    site_capture_release(&rs->capture);
    rs->capture = (struct site_capture){0};
    e->ops = &rs->tables.kept;
    site_init(&rs->capture.site, e, e->databases, gid);
    site_keep(&rs->capture.site, &before);
    CHECK(site_get_state(&rs->capture.site, buf_bytes(&state)));
    rs->was = (struct region_site_was){.known = !rs->fresh, .boot = rs->region->node->boot};
    rs->follows = true;
    rs->marked = false;
    buf_release(&rs->late);
    rs->late_at = 0;
    buf_release(&state);
}

bool region_site_follow(struct region *r, u8 gid, const char **why)
{
    struct buf raw = {0};
    struct site_row row;
    bool ok = true;
    if (r->site && !r->site->follows) site_stop(r->site);
    if (r->site) {
        *why = "the data is that of a site with another site-id";
        return r->site->capture.site.gid == gid;
    }
    site_row_read(r->eng, &raw);
    struct region_site *rs = region_site_new(r, gid);
    if (raw.n) {
        bool whole = site_row_get(buf_bytes(&raw), &row), forgets = whole && row.flags & ROW_FORGETS;
        *why = forgets ? "site-drop-metadata was interrupted: it has to be completed first, without site-id"
             : whole && site_row_gid(&row) != gid ? "the data is that of a site with another site-id"
                                             : "what the site has stored beside its keys is damaged";
        ok = whole && !forgets && follow_adopt(rs, &row);
    }
    buf_release(&raw);
    if (!ok) region_site_close(r);
    return ok;
}

static void site_start(struct region_site *rs)
{
    struct engine *e = rs->region->eng;
    struct site *s = &rs->capture.site;
    struct site before = *s;
    struct buf state = {0};
    site_put_state(s, true, &state);
    site_release(s);
    e->ops = &rs->tables.logged;
    site_capture_open(&rs->capture, e, e->databases, before.gid);
    site_keep(s, &before);
    if (rs->was.known) CHECK(site_get_state(s, buf_bytes(&state)));
    s->emit = region_site_emit;
    s->emit_arg = rs;
    rs->follows = false;
    rs->fresh = !rs->was.known;
    memset(rs->heard, 0, sizeof rs->heard);
    site_set_doubt(rs, site_in_doubt(rs));
    buf_release(&state);
}

static void site_start_backlog(struct region_site *rs, size_t limit)
{
    const struct site *s = &rs->capture.site;
    site_backlog_release(&rs->backlog);
    site_backlog_init(&rs->backlog, limit, &s->clock);
}

bool region_site_open(struct region *r, u8 gid, size_t backlog_bytes, const char **why)
{
    if (!region_site_follow(r, gid, why)) return false;
    struct region_site *rs = r->site;
    i64 now_ms = MAX(r->seen_ms, r->ks.now_ms);
    bool becomes = !rs->was.known || rs->was.flags & ROW_BECOMING;
    *why = "the data that came is that of a site with another site-id";
    if (rs->mismatch) return false;
    site_start(rs);
    region_begin(r, now_ms);
    rs->becoming = !becomes ? 0 : rs->was.known ? rs->was.stamp : (u64)MAX(now_ms, 1) << 16;
    *why = REGION_IO_ERROR;
    bool ok = !becomes || site_adopt_all(rs, now_ms);
    rs->state_changed = rs->state_logged = true;
    region_end_record(r);
    ok = region_commit(r) && ok;
    site_start_backlog(rs, backlog_bytes);
    rs->lost++; /* existing links have positions in another backlog */
    return ok;
}

void region_site_reload_begin(struct region *r)
{
    struct region_site *rs = r->site;
    if (!rs || rs->follows) return;
    if (!rs->reloading) rs->reloading = mem_alloc(sizeof *rs->reloading);
    *rs->reloading = rs->capture.site.clock;
    site_stop(rs);
}

/* The state is that of the file. If it equals the previous one, the backlog is still valid. */
void region_site_reload_end(struct region *r)
{
    struct region_site *rs = r->site;
    if (!rs || !rs->reloading) return;
    bool same = memcmp(rs->reloading, &rs->capture.site.clock, sizeof *rs->reloading) == 0;
    size_t limit = rs->backlog.limit;
    mem_free(rs->reloading);
    rs->reloading = NULL;
    rs->behind |= !same;
    rs->saving = false;
    buf_clear(&rs->made);
    site_start(rs);
    site_save_once(rs);
    if (!same) site_start_backlog(rs, limit);
    rs->state_changed = rs->state_logged = true;
    rs->lost++;
}

void region_site_close(struct region *r)
{
    struct region_site *rs = r->site;
    if (!rs) return;
    if (rs->follows) site_release(&rs->capture.site);
    else site_capture_release(&rs->capture);
    r->eng->ops = rs->tables.engine;
    r->eng->site = NULL;
    r->expiry_stream.ends &= ~(u32)RECORD_ENDS_SITE;
    site_backlog_release(&rs->backlog);
    site_log_release(&rs->log);
    buf_release(&rs->made);
    buf_release(&rs->staged);
    buf_release(&rs->place);
    buf_release(&rs->late);
    buf_release(&rs->told_key);
    buf_release(&rs->whole_key);
    mem_free(rs->saved);
    mem_free(rs->reloading);
    mem_free(rs);
    r->site = NULL;
}
