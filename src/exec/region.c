/* Running commands against a region. Nothing here reads a clock or a random
 * source: time comes with region_begin, seeds from the region's generator. */
#include "exec/region.h"

#include "command/commands.h"
#include "exec/admit.h"
#include "script/functions.h"
#include "exec/multi.h"
#include "exec/region_site.h"
#include "exec/route.h"
#include "script/script_replay.h"
#include "resp/request.h"

void region_init(struct region *r, struct node *node, struct engine *eng, u64 seed)
{
    *r = (struct region){.node = node, .eng = eng, .seeds = seed};
    keyspace_init(&r->ks, eng, &r->journal);
    r->ks.lag = &node->lag;
    r->ks.access_rng = rand_next(&r->seeds);
    r->journal.db = -1;
    r->journal.seq = r->committed = eng->applied;
    expire_cycle_init(&r->cycle);
    watches_init(&r->watches, &r->ks, &node->watching, rand_next(&r->seeds));
    waiters_init(&r->waiters, rand_next(&r->seeds));
    own_keys_init(&r->own, seed);
}

void region_touch(struct region *r)
{
    if (r->begun) return;
    r->begun = true;
    r->begun_next = r->node->begun;
    r->node->begun = r;
}

void region_visit_at(struct region *r, i64 ms)
{
    if (r->visited && r->visit.key == ms) return;
    if (r->visited) heap_remove(&r->node->visits, &r->visit);
    r->visited = ms != INT64_MAX;
    r->visit.key = ms;
    if (r->visited) heap_add(&r->node->visits, &r->visit);
}

static void region_forget_visits(struct region *r)
{
    region_visit_at(r, INT64_MAX);
    struct region **at = &r->node->begun;
    while (*at && *at != r) at = &(*at)->begun_next;
    if (*at) *at = r->begun_next;
}

void region_release(struct region *r)
{
    struct node *node = r->node;
    region_forget_visits(r);
    watches_release(&r->watches);
    node->keys_ready -= waiters_ready(&r->waiters);
    waiters_release(&r->waiters);
    own_keys_release(&r->own);
    region_site_close(r);
    expiry_stream_release(&r->expiry_stream);
    journal_release(&r->journal);
    if (r->eng) r->eng->ops->close(r->eng); /* rocks_merge has closed a source's */
}

static void region_note_failure(struct region *r, bool wrote);

static COLD void tell_expired(struct region *r)
{
    bool silent = expiry_follows(r->mode) || !expiry_is_recorded(r->mode);
    if (silent || r->doomed) expiry_stream_forget(&r->expiry_stream);
    else expiry_stream_tell(&r->expiry_stream, &r->ks);
    if (r->eng->failed) region_note_failure(r, true);
}

/* What only some servers have to do. */
static COLD void end_record(struct region *r)
{
    if (r->expiry_stream.ends & RECORD_ENDS_NOTED) tell_expired(r);
    if (r->expiry_stream.ends & RECORD_ENDS_SITE) region_site_ran(r);
}

/* Ends the record of a command, or of a slice of the cycle; it includes expiry-stream's entries for what
 * expired in it. */
static ALWAYS_INLINE void close_record(struct region *r, u64 seed)
{
    if (UNLIKELY(r->expiry_stream.ends)) end_record(r);
    journal_close(&r->journal, r->ks.now_ms, seed);
}

void region_end_record(struct region *r)
{
    if (UNLIKELY(r->eng->failed)) region_note_failure(r, true);
    close_record(r, 0);
}

void region_expire_all(struct region *r)
{
    struct expire_sweep sweep = {0};
    bool more = r->mode == EXPIRY_ACTIVE; /* a replica leaves it to the primary, whose clock counts */
    while (more) {
        more = expire_sweep_step(&sweep, &r->ks);
        if (r->node->depth == 0) close_record(r, 0);
    }
}

/* Sets the time that commands see. If the wall clock is set back a little (NTP), the time stands still; if it
 * is set back further, the new time counts, but first everything dead by the old time is deleted, so that
 * nothing dead comes back. The active cycle can't do that: it may be off, and it skips keys that died just
 * now. */
void region_begin(struct region *r, i64 now_ms)
{
    if (UNLIKELY(!r->begun)) region_touch(r);
    if (UNLIKELY(r->site != NULL)) now_ms = region_site_begin(r, now_ms);
    i64 back = r->seen_ms - now_ms;
    if (UNLIKELY(back > 0) && !expiry_of_group(r->mode)) { /* a group's clock never steps back by itself */
        if (back < REGION_CLOCK_SLACK_MS) now_ms = r->seen_ms;
        else region_expire_all(r);
    }
    r->seen_ms = now_ms;
    keyspace_begin(&r->ks, now_ms, r->mode);
}

void region_set_time(struct region *r, i64 now_ms)
{
    r->seen_ms = r->ks.now_ms = r->ks.dead_by_ms = r->eng->now_ms = now_ms;
}

void region_advance(struct region *r, i64 now_ms)
{
    if (now_ms > r->ks.now_ms && r->ks.dead_by_ms == r->ks.now_ms) region_set_time(r, now_ms);
}

/* One region's engine stores the functions, whichever region the command that changed them ran in. */
static bool region_has_functions(const struct region *r)
{
    return functions_changed(r->node) && r == region_map_home(&r->node->regions);
}

static void region_before_commit(struct region *r)
{
    if (UNLIKELY(region_has_functions(r)) && !r->doomed) functions_write(r->node, r->eng);
    if (UNLIKELY(r->site != NULL)) region_site_store(r);
}

static void region_after_commit(struct region *r, bool kept)
{
    bool functions = region_has_functions(r);
    if (kept) r->committed = r->journal.seq;
    else r->journal.seq = r->committed; /* numbers that were not kept leave no gap */
    r->doomed = false;
    if (UNLIKELY(r->site != NULL)) region_site_settle(r, kept);
    if (UNLIKELY(functions)) functions_settle(r->node, kept);
}

bool region_commit(struct region *r)
{
    region_before_commit(r);
    bool kept = !r->doomed && r->eng->ops->commit(r->eng, r->journal.seq);
    if (r->doomed) r->eng->ops->abort(r->eng);
    region_after_commit(r, kept);
    return kept;
}

bool region_commit_all(struct region *const *r, u32 n)
{
    struct engine *e[DISK_TOGETHER];
    u64 seq[DISK_TOGETHER];
    bool doomed = false;
    CHECK(n > 0 && n <= DISK_TOGETHER);
    for (u32 i = 0; i < n; i++) {
        region_before_commit(r[i]);
        doomed |= r[i]->doomed;
        e[i] = r[i]->eng;
        seq[i] = r[i]->journal.seq;
    }
    bool kept = !doomed && e[0]->ops->disk->commit_all(e, seq, n);
    for (u32 i = 0; doomed && i < n; i++) e[i]->ops->abort(e[i]);
    for (u32 i = 0; i < n; i++) region_after_commit(r[i], kept);
    return kept;
}

bool region_may_split(const struct region *r)
{
    const struct journal *j = &r->journal;
    bool touched = j->changed || j->open.effects || functions_changed(r->node);
    return !touched && !r->doomed && !r->eng->failed && !r->node->loading && !expiry_follows(r->mode);
}

void region_split(struct region *r, bool kept)
{
    r->doomed = !kept;
    r->eng->ops->begin(r->eng, r->eng->now_ms);
}

/* The storage failed. A read can be repeated; a write may be half done, so its whole tick is given up. */
static void region_note_failure(struct region *r, bool wrote)
{
    journal_abandon(&r->journal);
    r->eng->failed = false;
    if (wrote) r->doomed = true;
}

/* -- running ------------------------------------------------------------------------ */

/* Whether the arguments of the running command outlive its record: those of commands of EXEC and scripts may
 * not. */
static bool arguments_stay(const struct region *r)
{
    return r->node->depth == 1 && !r->node->script && !r->journal.open.lent.n;
}

/* A command that changed something and stated no effect is its own effect, under its original name. */
static void default_effect(struct region *r, struct ctx *c)
{
    if (r->ks.dirty == c->dirty_before) return;
    journal_changed(&r->journal);
    if (c->effects_given || !journal_wanted(&r->journal)) return;
    bytes sent = c->argv[0];
    if (r->node->find) /* without a subcommand's */
        c->argv[0] = bytes_of(c->cmd->name, strcspn(c->cmd->name, "|"));
    if (UNLIKELY(c->argv[c->argc - 1].n > JOURNAL_LEND_MIN) && arguments_stay(r))
        journal_effect_lent(&r->journal, c->db, c->argc, c->argv);
    else journal_effect(&r->journal, c->db, c->argc, c->argv);
    c->argv[0] = sent;
}

/* The engine could not reach its storage: the reply is replaced by an error. */
static COLD void fail_command(struct region *r, struct ctx *c)
{
    region_note_failure(r, r->ks.dirty != r->dirty_outside || c->cmd->flags & CMD_WRITE);
    c->out->out->n = c->reply_at;
    reply_error(c->out, REGION_IO_ERROR);
}

#define KEYS_TOGETHER 64
#define APPLIED_UNHELD 1024 /* commands of a record between two calls of node_held */

/* For a command of many keys: the engine can fetch them together. */
static void prefetch_keys(struct region *r, const struct ctx *c)
{
    const struct key_spec *spec = &c->cmd->specs[0];
    struct want want[KEYS_TOGETHER];
    u32 n = 0;
    if (spec->begin != SEEK_INDEX || spec->find != FIND_RANGE) return;
    int last = spec->last < 0 ? c->argc + spec->last : MIN(spec->pos + spec->last, c->argc - 1);
    for (int i = spec->pos; i <= last; i += spec->step) {
        want[n++] = (struct want){c->db, c->argv[i]};
        if (n < KEYS_TOGETHER && i + spec->step <= last) continue;
        if (n > 1) r->eng->ops->prefetch(r->eng, want, n);
        n = 0;
    }
}

static void call(struct region *r, const struct request *q, struct ctx *c)
{
    struct node *n = r->node;
    bool deletes_dead = r->ks.deletes_dead, only_reads = r->ks.only_reads;
    r->ks.only_reads = !(c->cmd->flags & CMD_WRITE);
    r->ks.deletes_dead = !r->ks.only_reads || r->ks.reads_delete;
    r->ks.no_touch = q->session->no_touch;
    c->dirty_before = r->ks.dirty;
    if (LIKELY(n->depth++ == 0)) r->dirty_outside = r->ks.dirty;
    if (UNLIKELY(c->cmd->specs[0].last && c->argc > 3)) prefetch_keys(r, c);
    if (UNLIKELY(c->cmd->specs[1].begin == SEEK_UNKNOWN && acl_restricts(q->session)))
        c->keys_limited = !acl_reads_all(q->session->user, c->cmd, c->argc, c->argv);
    r->eng->input = q->input;
    c->cmd->run(c);
    r->eng->input = NULL;
    default_effect(r, c);
    r->ks.deletes_dead = deletes_dead;
    r->ks.only_reads = only_reads;
    n->depth--;
    if (UNLIKELY(r->eng->failed)) fail_command(r, c);
}

/* Names every field, so that each is written once: if one were missing, the compiler would clear all of them
 * first. */
static ALWAYS_INLINE struct ctx make_ctx(struct region *r, const struct request *q)
{
    u64 seed = rand_next(&r->seeds);
    return (struct ctx){
        .cmd = NULL,
        .argc = q->argc,
        .db = q->session->db,
        .argv = q->argv,
        .out = q->out,
        .reply_at = reply_mark(q->out),
        .session = q->session,
        .ks = &r->ks,
        .eng = r->eng,
        .server = q->server,
        .region = r,
        .now_ms = r->ks.now_ms,
        .seed = seed,
        .rng = seed,
        .dirty_before = 0,
        .effects_given = false,
        .keys_limited = false,
        .in_script = r->node->script != NULL,
        .keeps_nothing = false,
        .may_wait = false,
        .ready = NULL,
        .postponed = 0,
        .waiting = NULL,
    };
}

/* A reading command that may cache its result in the key does not if nothing can be stored, or in a replica,
 * which must stay a copy. */
static bool keeps_nothing(const struct region *r, const struct command *cmd)
{
    return UNLIKELY(cmd->flags & CMD_MAY_REPLICATE) && (r->node->refuse_writes || expiry_follows(r->mode));
}

/* Checked last: what would be refused is refused at once. */
static u32 region_hold(const struct region *r, const struct request *q, const struct command *cmd)
{
    u32 flags = cmd->run == cmd_exec ? multi_flags(q->session, cmd)
                                     : script_command_flags(r->node, cmd, q->argv);
    return r->node->holds(r->node->owner, q, cmd, flags & (CMD_WRITE | CMD_MAY_REPLICATE));
}

void region_run(struct region *r, const struct request *q, struct outcome *o)
{
    const struct node *n = r->node;
    struct ctx c = make_ctx(r, q);
    u32 errors = q->out->errors;
    u64 seq = r->journal.seq;
    *o = (struct outcome){.region = r};
    c.may_wait = true;
    c.cmd = admit_resolve(node_find(n, q->argv[0]), q, &c);
    o->cmd = c.cmd;
    if (UNLIKELY(!c.cmd || !admit(r, q, &c))) {
        o->rejected = true;
        if (q->session->tx || (c.cmd && c.cmd->run == cmd_exec))
            multi_rejected(&c);
    } else if (LIKELY(!n->held_for) || !(o->held = region_hold(r, q, c.cmd))) {
        o->queued = UNLIKELY(q->session->tx != NULL) && multi_takes(q->session, c.cmd);
        if (UNLIKELY(o->queued)) multi_queue(r, q, c.cmd);
        else {
            c.keeps_nothing = keeps_nothing(r, c.cmd);
            call(r, q, &c);
        }
    }
    o->failed = !o->rejected && q->out->errors != errors;
    o->waiting = c.waiting;
    o->held |= c.postponed;
    if (LIKELY(!n->script)) close_record(r, c.seed);
    o->wrote = r->journal.seq != seq;
}

bool region_retry(struct region *r, const struct request *q, const struct command *cmd, bytes ready,
                  struct outcome *o)
{
    struct ctx c = make_ctx(r, q);
    u32 errors = q->out->errors;
    c.cmd = cmd;
    c.ready = &ready;
    call(r, q, &c);
    u64 seq = r->journal.seq;
    close_record(r, c.seed);
    *o = (struct outcome){
        .cmd = cmd, .failed = q->out->errors != errors, .region = r, .wrote = r->journal.seq != seq,
    };
    return reply_mark(q->out) != c.reply_at;
}

void region_call(struct region *r, const struct request *q, const struct command *cmd, struct outcome *o)
{
    const struct node *n = r->node;
    struct ctx c = make_ctx(r, q);
    u32 errors = q->out->errors;
    bool no_touch = r->ks.no_touch;
    c.cmd = cmd;
    c.keeps_nothing = keeps_nothing(r, cmd);
    call(r, q, &c);
    r->ks.no_touch = no_touch;
    *o = (struct outcome){.cmd = cmd, .failed = q->out->errors != errors};
    if (n->on_nested) n->on_nested(n->owner, q, o);
}

/* -- replaying ---------------------------------------------------------------------- */

/* Whether a command of a record, a file or a primary can be run. */
static bool runnable(const struct command *cmd, int argc)
{
    return cmd && cmd->run && command_takes(cmd, argc);
}

static bool is_bracket(bytes name) { return bytes_is(name, "multi") || bytes_is(name, "exec"); }

/* Messages in a file or record are not published again. */
static bool region_is_message(bytes name) { return bytes_is(name, "publish") || bytes_is(name, "spublish"); }

/* HDEL does not see dead fields, but the primary deletes them by HDEL: so they are deleted here. */
static void reap_fields(struct region *r, const struct ctx *c)
{
    struct key_ref ref;
    if (!bytes_is(c->argv[0], "hdel")) return;
    if (!keyspace_find(&r->ks, c->db, c->argv[1], LOOKUP_WRITE, &ref) || ref.type != TYPE_HASH) return;
    for (int i = 2; i < c->argc; i++) keyspace_reap_field(&r->ks, &ref, c->argv[i], false);
}

static err apply_one(struct region *r, const struct request *q)
{
    struct ctx c = make_ctx(r, q);
    if (is_bracket(q->argv[0]) || region_is_message(q->argv[0])) return OK;
    c.cmd = admit_resolve(command_find(q->argv[0]), q, &c);
    if (!runnable(c.cmd, q->argc)) return ERR_SYNTAX;
    reap_fields(r, &c);
    call(r, q, &c);
    return OK;
}

err region_apply(struct region *r, struct session *session, struct server *server,
                 const struct journal_record *record)
{
    struct request_parser p;
    struct request_limits limits = {.max_bulk = INT32_MAX};
    struct buf ignored = {0};
    bytes in = buf_bytes(&record->resp), argv_space[64], *argv = argv_space;
    struct buf big = {0};
    err e = OK;
    keyspace_begin(&r->ks, record->now_ms, record->now_ms ? r->mode : EXPIRY_APPLY);
    request_parser_init(&p);
    for (u32 n = 1; !e && in.n; n++) {
        size_t used;
        if (n % APPLIED_UNHELD == 0) node_held(r->node);
        if ((e = request_parse(&p, &limits, in, &used))) break;
        if (p.argc > ARRAY_LEN(argv_space)) {
            buf_clear(&big);
            argv = (bytes *)(void *)buf_reserve(&big, p.argc * sizeof *argv);
        }
        for (u32 i = 0; i < p.argc; i++) argv[i] = request_arg(&p, in.p, i);
        struct reply out = {.out = &ignored, .proto = 2};
        struct request q = {session, server, (int)p.argc, argv, &out};
        if (p.argc) e = apply_one(r, &q);
        buf_clear(&ignored);
        in = bytes_of(in.p + used, in.n - used);
        argv = argv_space;
    }
    close_record(r, record->seed);
    request_parser_release(&p);
    buf_release(&ignored);
    buf_release(&big);
    return e == ERR_AGAIN ? ERR_SYNTAX : e;
}

/* Redis also writes PFCOUNT, a read that caches its result in the key. */
static bool belongs_in_files(const struct command *cmd)
{
    const u32 leaves = CMD_READONLY | CMD_MAY_REPLICATE;
    return cmd->flags & CMD_WRITE || (cmd->flags & leaves) == leaves || cmd->run == cmd_select ||
           cmd->run == cmd_echo || script_is_replayed(cmd);
}

/* A site's history has its metadata as the argument of ECHO (exec/site_log.h), which changes no data. True:
 * that was it. */
static bool is_site_log(const struct request *q, const struct ctx *c)
{
    return c->cmd->run == cmd_echo && site_log_is(q->argv[1]);
}

static void take_site_log(struct region *r, const struct request *q)
{
    if (!region_site_take_log(r, q->argv[1], 0)) reply_error(q->out, "ERR malformed metadata of a site");
}

static void call_replayed(struct region *r, const struct request *q, struct ctx *c)
{
    if (is_site_log(q, c)) {
        take_site_log(r, q);
        return;
    }
    struct script_replay saved;
    bool script = UNLIKELY(!(c->cmd->flags & CMD_WRITE)) && script_is_replayed(c->cmd);
    if (script) script_replay_begin(r->node, &saved);
    call(r, q, c);
    if (script) script_replay_end(r->node, &saved);
}

void region_replay(struct region *r, const struct request *q, struct outcome *o)
{
    struct ctx c = make_ctx(r, q);
    u32 errors = q->out->errors;
    c.cmd = admit_resolve(command_find(q->argv[0]), q, &c);
    *o = (struct outcome){.cmd = c.cmd, .rejected = true};
    if (!runnable(c.cmd, q->argc) || !belongs_in_files(c.cmd)) {
        o->rejected = !region_is_message(q->argv[0]); /* it may be among the changes of a transaction */
        return;
    }
    o->rejected = false;
    reap_fields(r, &c);
    call_replayed(r, q, &c);
    journal_close(&r->journal, r->ks.now_ms, c.seed); /* advances its number only: there is no sink */
    o->failed = q->out->errors != errors;
}

void region_follow_begin(struct region *r)
{
    keyspace_begin(&r->ks, r->seen_ms, EXPIRY_APPLY);
}

void region_follow(struct region *r, const struct request *q, struct outcome *o)
{
    struct ctx c = make_ctx(r, q);
    u32 errors = q->out->errors;
    *o = (struct outcome){.rejected = true};
    if (is_bracket(q->argv[0])) return;
    c.cmd = o->cmd = admit_resolve(command_find(q->argv[0]), q, &c);
    if (!runnable(c.cmd, q->argc)) return;
    o->rejected = false;
    if (UNLIKELY(r->node->evictor.maxmemory) && admit_eviction(r))
        (void)evict_as_needed(&r->node->evictor, &r->ks); /* a primary can't be answered with OOM */
    r->obeys = true;
    call_replayed(r, q, &c);
    r->obeys = false;
    o->failed = q->out->errors != errors;
    close_record(r, c.seed);
}

/* A snapshot must save a long stream before it can be appended to. */
static bool expiry_stream_waits(struct region *r)
{
    return UNLIKELY(expiry_stream_on(&r->expiry_stream)) &&
           r->eng->ops->snapshot.heavy(r->eng, 0, buf_bytes(&r->expiry_stream.name));
}

bool region_expire_step(struct region *r)
{
    if (UNLIKELY(r->site != NULL) && r->mode == EXPIRY_SITE) return region_site_expire_step(r);
    bool more = expiry_follows(r->mode) ? own_keys_step(&r->own, &r->ks)
                           : !expiry_stream_waits(r) && expire_cycle_step(&r->cycle, &r->ks);
    if (UNLIKELY(r->eng->failed)) region_note_failure(r, true);
    close_record(r, 0);
    return more;
}

bool region_evict_step(struct region *r)
{
    bool more = admit_eviction(r) && evict_step(&r->node->evictor, &r->ks);
    close_record(r, 0);
    return more;
}
