/* Checks before a client's command runs. */
#include "exec/admit.h"

#include "command/commands.h"
#include "exec/multi.h"
#include "exec/permit.h"
#include "exec/route.h"
#include "script/script.h"

#define SHOWN_ARGS 128 /* how much of the arguments an "unknown command" error repeats */

static COLD void unknown_command(const struct request *q)
{
    struct buf args = {0};
    for (int i = 1; i < q->argc && args.n < SHOWN_ARGS; i++)
        buf_printf(&args, "'%.*s' ", (int)MIN(q->argv[i].n, SHOWN_ARGS - args.n), q->argv[i].p);
    reply_errorf(q->out, "ERR unknown command '%.*s', with args beginning with: %.*s",
                 (int)MIN(q->argv[0].n, SHOWN_ARGS), q->argv[0].p, (int)args.n, args.p ? args.p : "");
    buf_release(&args);
}

const struct command *admit_resolve_sub(const struct command *cmd, const struct request *q, struct ctx *c)
{
    if (!cmd) {
        unknown_command(q);
        return NULL;
    }
    c->cmd = cmd;
    if (cmd->sub_count && q->argc > 1) {
        const struct command *sub = command_find_sub(cmd, q->argv[1]);
        if (sub) return sub;
        ctx_unknown_subcommand(c);
        return NULL;
    }
    return cmd;
}

/* In Redis's order. */
const char *admit_obstacle_to(const struct region *r, u32 flags)
{
    const struct node *n = r->node;
    bool writes = flags & CMD_WRITE;
    if (r->doomed) return REGION_IO_ERROR; /* it would read changes that will be undone */
    if (n->refuse_writes && writes) return n->refuse_writes; /* a script's commands are asked */
    if (n->deny_writes && writes) return n->deny_writes;
    if (n->deny_stale && !(flags & CMD_STALE)) return n->deny_stale;
    if (n->loading && !(flags & CMD_LOADING)) return REGION_LOADING;
    if (r->eng->captured && flags & CMD_NO_SITE) return REGION_NO_SITE;
    return NULL;
}

bool admit_eviction(struct region *r)
{
    struct node *n = r->node;
    if (!expiry_follows(r->mode) || (n->evict_following && !n->refuse_writes)) return true;
    n->evictor.unfinished = false;
    return false;
}

/* What a client that is subscribed may send in RESP2, which can't tell messages from replies. */
static bool fits_subscriber(const struct command *cmd)
{
    static const command_fn fit[] = {
        cmd_ping, cmd_subscribe, cmd_ssubscribe, cmd_psubscribe, cmd_unsubscribe, cmd_sunsubscribe,
        cmd_punsubscribe, cmd_quit, cmd_reset,
    };
    for (size_t i = 0; i < ARRAY_LEN(fit); i++)
        if (cmd->run == fit[i]) return true;
    return false;
}

static bool refused_to_subscriber(const struct request *q, const struct command *cmd)
{
    if (LIKELY(!q->session->subscribed) || q->session->proto > 2 || fits_subscriber(cmd)) return false;
    reply_errorf(q->out, "ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / "
                         "RESET are allowed in this context", cmd->name);
    return true;
}

static bool admit_refuse(const struct request *q, const char *why)
{
    reply_error(q->out, why);
    return false;
}

/* False while a script has been running for too long, unless the command is allowed then: BUSY was
 * replied. */
static bool fits_busy(const struct region *r, const struct request *q, const struct command *cmd)
{
    const char *busy = script_busy_error(r->node);
    return !busy || cmd->flags & CMD_ALLOW_BUSY || admit_refuse(q, busy);
}

/* In cluster mode: why the request can't run in this node's regions; NULL: it can. */
static const char *belongs_elsewhere(const struct node *n, const struct request *q, const struct command *cmd)
{
    if (q->slot == SLOT_CROSS) return ROUTE_CROSSSLOT;
    if (q->slot == SLOT_UNSERVED) return ROUTE_UNSERVED;
    return n->elsewhere ? n->elsewhere(n->owner, q, cmd) : NULL;
}

bool admit(struct region *r, const struct request *q, struct ctx *c)
{
    const struct command *cmd = c->cmd;
    struct node *n = r->node;
    if (!command_takes(cmd, q->argc) || !cmd->run) {
        ctx_wrong_arity(c);
        return false;
    }
    if (UNLIKELY(!q->session->authenticated) && !n->open && !(cmd->flags & CMD_NO_AUTH))
        return admit_refuse(q, "NOAUTH Authentication required.");
    u32 flags = cmd->flags;
    if (UNLIKELY(q->session->tx != NULL)) {
        if (multi_open(q->session) && flags & CMD_NO_MULTI)
            return admit_refuse(q, "ERR Command not allowed inside a transaction");
        flags = multi_flags(q->session, cmd);
        if (multi_takes(q->session, cmd)) flags |= CMD_DENYOOM; /* the queue itself takes memory */
    }
    if (UNLIKELY(acl_restricts(q->session)) &&
        !permit_request(n, q, cmd, multi_open(q->session) ? ACL_MULTI : ACL_TOPLEVEL))
        return false;
    const char *why = UNLIKELY(n->cluster_enabled) ? belongs_elsewhere(n, q, cmd) : NULL;
    if (UNLIKELY(why)) return admit_refuse(q, why); /* Redis asks here: not before users and arity */
    if (refused_to_subscriber(q, cmd)) return false;
    why = admit_obstacle(r, flags);
    if (UNLIKELY(why)) return admit_refuse(q, why);
    if (UNLIKELY(n->script != NULL)) return fits_busy(r, q, cmd);
    n->over_memory = n->evictor.maxmemory && !n->loading && admit_eviction(r) &&
                     !evict_as_needed(&n->evictor, &r->ks);
    if (UNLIKELY(n->over_memory) && flags & CMD_DENYOOM) return admit_refuse(q, REGION_OOM);
    if (UNLIKELY(q->session->monitor) && flags & CMD_OF_KEYSPACE) /* which is a kind of replica to Redis */
        return admit_refuse(q, "ERR Replica can't interact with the keyspace");
    return true;
}
