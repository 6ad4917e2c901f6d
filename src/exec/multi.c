/* MULTI EXEC DISCARD WATCH UNWATCH.
 *
 * EXEC is a command within which others run (region_call): they share its record, and if the storage fails
 * under any of them after one has changed something, all are undone. */
#include "exec/multi.h"

#include "command/commands.h"
#include "exec/permit.h"
#include "exec/route.h"
#include "script/script.h"

static struct transaction *open_tx(struct session *s)
{
    if (!s->tx) s->tx = mem_zalloc(sizeof *s->tx);
    return s->tx;
}

/* Frees the state of a client that neither watches nor queues. */
static void drop_tx_if_idle(struct session *s)
{
    const struct transaction *tx = s->tx;
    if (!tx || tx->open || tx->watcher.first || tx->watcher.dirty) return;
    mem_free(s->tx);
    s->tx = NULL;
}

static void clear_queue(struct session *s)
{
    struct transaction *tx = s->tx;
    for (u32 i = 0; i < tx->count; i++) mem_free(tx->queue[i]);
    mem_free(tx->queue);
    tx->queue = NULL;
    tx->count = tx->cap = 0;
    tx->open = tx->spoiled = false;
    s->queue_bytes = 0;
}

void multi_end(struct session *s)
{
    if (!s->tx) return;
    clear_queue(s);
    watch_none(&s->tx->watcher);
    drop_tx_if_idle(s);
}

void multi_failed(struct session *s, bool said_multi)
{
    if (!multi_open(s)) return;
    s->tx->spoiled = true;
    if (!said_multi) return;
    clear_queue(s);
    drop_tx_if_idle(s);
}

size_t multi_memory(const struct session *s)
{
    const struct transaction *tx = s->tx;
    return tx ? sizeof *tx + tx->cap * sizeof *tx->queue + s->queue_bytes + watch_memory(&tx->watcher) : 0;
}

/* -- queueing -------------------------------------------------------------------------------- */

bool multi_takes(const struct session *s, const struct command *cmd)
{
    command_fn f = cmd->run;
    return s->tx->open && f != cmd_exec && f != cmd_discard && f != cmd_multi && f != cmd_watch &&
           f != cmd_quit && f != cmd_reset;
}

static size_t queued_size(const struct request *q)
{
    size_t n = sizeof(struct queued) + (size_t)q->argc * sizeof(bytes);
    for (int i = 0; i < q->argc; i++) n += q->argv[i].n;
    return n;
}

static struct queued *copy_of(const struct request *q, const struct command *cmd, size_t size)
{
    struct queued *copy = mem_alloc(size);
    char *text = (char *)(copy->argv + q->argc);
    copy->cmd = cmd;
    copy->argc = q->argc;
    for (int i = 0; i < q->argc; i++) {
        copy->argv[i] = bytes_of(text, q->argv[i].n);
        if (q->argv[i].n) memcpy(text, q->argv[i].p, q->argv[i].n);
        text += q->argv[i].n;
    }
    return copy;
}

void multi_queue(const struct region *r, const struct request *q, const struct command *cmd)
{
    struct session *s = q->session;
    struct transaction *tx = s->tx;
    reply_simple(q->out, "QUEUED");
    if (tx->spoiled || tx->watcher.dirty) return; /* it will not run: spend no memory on it */
    if (tx->count == tx->cap) {
        tx->cap = MAX(tx->cap * 2, 8u);
        tx->queue = mem_realloc(tx->queue, tx->cap * sizeof *tx->queue);
    }
    size_t size = queued_size(q);
    tx->queue[tx->count++] = copy_of(q, cmd, size);
    tx->any_flags |= script_command_flags(r->node, cmd, q->argv);
    tx->all_flags &= cmd->flags;
    tx->slot = route_join(tx->slot, q->slot);
    tx->for_home |= route_is_for_home(cmd);
    s->queue_bytes += size;
}

i32 multi_slot(const struct session *s) { return multi_open(s) ? s->tx->slot : SLOT_NONE; }

u32 multi_flags(const struct session *s, const struct command *cmd)
{
    const u32 one_has = CMD_WRITE | CMD_READONLY | CMD_DENYOOM | CMD_MAY_REPLICATE | CMD_NO_ASYNC_LOADING;
    const u32 all_have = CMD_STALE | CMD_LOADING;
    if (cmd->run != cmd_exec || !multi_open(s)) return cmd->flags;
    return (cmd->flags & ~all_have) | (s->tx->any_flags & one_has) |
           (cmd->flags & s->tx->all_flags & all_have);
}

/* The text begins with the word, which is a literal. */
#define BEGINS(text, word) ((text).n >= sizeof(word) - 1 && memcmp((text).p, word, sizeof(word) - 1) == 0)

/* Where a request has to go, or that it can't go anywhere. */
static bool is_of_routing(bytes error)
{
    return BEGINS(error, "-MOVED ") || BEGINS(error, "-CLUSTERDOWN ") || BEGINS(error, "-CROSSSLOT ");
}

void multi_rejected(struct ctx *c)
{
    struct buf *out = c->out->out;
    struct buf why = {0};
    if (multi_open(c->session)) c->session->tx->spoiled = true;
    if (!c->cmd || c->cmd->run != cmd_exec) return;
    size_t mark = c->reply_at;
    bytes error = bytes_of(out->p + mark, out->n - mark);
    if (is_of_routing(error)) {
        multi_end(c->session);
        return;
    }
    size_t code = BEGINS(error, "-ERR ") ? 5 : 1; /* only a special error code is repeated */
    buf_append(&why, error.p + code, error.n - code - 2);
    out->n = mark;
    c->out->errors--;
    reply_errorf(c->out, "EXECABORT Transaction discarded because of: %.*s", (int)why.n, why.p);
    buf_release(&why);
    multi_end(c->session);
}

/* -- running --------------------------------------------------------------------------------- */

#define FETCH_MAX 64

/* Tells the engine the keys of the next commands, so that it can fetch them together; returns the index after
 * the last. */
static u32 fetch_keys(const struct ctx *c, const struct transaction *tx, u32 from)
{
    struct engine *e = c->eng;
    struct want want[FETCH_MAX];
    u32 n = 0, end = MIN(tx->count, from + MAX(MIN(e->caps.prefetch_ahead, FETCH_MAX), 1u));
    for (u32 i = from; i < end; i++) {
        const struct queued *q = tx->queue[i];
        const struct key_spec *spec = &q->cmd->specs[0];
        if (spec->begin != SEEK_INDEX || spec->find != FIND_RANGE || spec->pos >= q->argc) continue;
        int element = e->caps.prefetch_elements && q->cmd->element < q->argc ? q->cmd->element : 0;
        want[n++] = (struct want){c->session->db, q->argv[spec->pos],
                                  element ? q->argv[element] : (bytes){0}};
    }
    if (n > 1) e->ops->prefetch(e, want, n);
    return end;
}

/* CLIENT REPLY OFF in a transaction takes effect at once, in the middle of EXEC's reply, as in Redis. */
static void multi_drop_muted(struct ctx *c, size_t mark)
{
    if (UNLIKELY(c->session->reply_mode == REPLY_OFF)) c->out->out->n = mark;
}

/* The user may have been changed since the command was queued, or replaced by AUTH. */
static bool still_permitted(struct ctx *c, const struct request *q, const struct command *cmd)
{
    static const char *const reasons[] = {
        [ACL_NO_COMMAND] = "no permission to execute the command or subcommand",
        [ACL_NO_KEY] = "no permission to touch the specified keys",
        [ACL_NO_CHANNEL] = "no permission to access one of the channels used as arguments",
    };
    enum acl_denial denial = permit_check(ctx_node(c), q, cmd, ACL_MULTI);
    if (LIKELY(denial == ACL_ALLOWED)) return true;
    reply_errorf(c->out, "NOPERM ACLs rules changed between the moment the transaction was accumulated and "
                         "the EXEC call. This command is no longer allowed for the following reason: %s",
                 reasons[denial]);
    return false;
}

static void count_denial(const struct ctx *c, const struct request *q)
{
    const struct outcome nobodys = {0}; /* the error is counted, but for no command */
    if (ctx_node(c)->on_nested) ctx_node(c)->on_nested(ctx_node(c)->owner, q, &nobodys);
}

/* Errors of queued commands are counted for them (node.on_nested), not for EXEC; but if the last one is no
 * longer permitted, EXEC fails. */
static void run_queue(struct ctx *c, const struct transaction *tx)
{
    size_t mark = reply_mark(c->out);
    reply_array(c->out, tx->count);
    multi_drop_muted(c, mark);
    for (u32 i = 0, fetched = 0; i < tx->count; i++) {
        struct queued *next = tx->queue[i];
        struct request q = {c->session, c->server, next->argc, next->argv, c->out};
        struct outcome o;
        if (i == fetched) {
            fetched = fetch_keys(c, tx, i);
            node_held(ctx_node(c));
        }
        mark = reply_mark(c->out);
        if (LIKELY(still_permitted(c, &q, next->cmd))) region_call(c->region, &q, next->cmd, &o);
        else if (i + 1 == tx->count && c->session->reply_mode != REPLY_OFF) break;
        else count_denial(c, &q);
        c->out->errors = c->out->counted = 0;
        multi_drop_muted(c, mark);
    }
}

void cmd_exec(struct ctx *c)
{
    struct transaction *tx = c->session->tx;
    ctx_no_effect(c);
    if (!multi_open(c->session)) {
        reply_error(c->out, "ERR EXEC without MULTI");
        return;
    }
    if (tx->spoiled) {
        reply_error(c->out, "EXECABORT Transaction discarded because of previous errors.");
    } else if (watch_broken(&tx->watcher)) {
        reply_null_array(c->out);
    } else {
        watch_none(&tx->watcher); /* ignore its own changes */
        run_queue(c, tx);
    }
    multi_end(c->session);
}

/* -- the others ------------------------------------------------------------------------------ */

void cmd_multi(struct ctx *c)
{
    if (multi_open(c->session)) {
        reply_error(c->out, "ERR MULTI calls can not be nested");
        return;
    }
    struct transaction *tx = open_tx(c->session);
    tx->open = true;
    tx->any_flags = 0;
    tx->all_flags = ~0u;
    tx->slot = SLOT_NONE;
    tx->for_home = false;
    reply_ok(c->out);
}

void cmd_discard(struct ctx *c)
{
    if (!multi_open(c->session)) {
        reply_error(c->out, "ERR DISCARD without MULTI");
        return;
    }
    multi_end(c->session);
    reply_ok(c->out);
}

void cmd_watch(struct ctx *c)
{
    struct region *r = c->region;
    if (multi_open(c->session)) {
        reply_error(c->out, "ERR WATCH inside MULTI is not allowed");
        return;
    }
    struct watcher *who = &open_tx(c->session)->watcher;
    for (int i = 1; i < c->argc && !who->dirty; i++) watch_key(&r->watches, who, c->db, c->argv[i]);
    region_listen(r, LISTEN_WATCH, watches_any(&r->watches));
    reply_ok(c->out);
}

void cmd_unwatch(struct ctx *c)
{
    if (c->session->tx) watch_none(&c->session->tx->watcher);
    drop_tx_if_idle(c->session);
    reply_ok(c->out);
}
