/* SUBSCRIBE and the like, PUBLISH, PUBSUB. */
#include "cluster/cluster.h"
#include "command/commands.h"
#include "server/client/pubsub.h"
#include "server/server.h"

/* -- subscribing ------------------------------------------------------------------------------------- */

/* CLIENT REPLY does not suppress confirmations of subscriptions: they are sent as messages then. */
static struct reply writer(struct ctx *c)
{
    if (c->session->reply_mode == REPLY_ON || !c->may_wait) return *c->out;
    return conn_push(conn_of(c->session), PUSH_BEFORE);
}

/* Shard channels are counted separately. */
static u64 counted(const struct conn *x, enum pubsub_kind kind)
{
    if (kind == PUBSUB_SHARD) return pubsub_subscriptions(x, PUBSUB_SHARD);
    return pubsub_subscriptions(x, PUBSUB_CHANNEL) + pubsub_subscriptions(x, PUBSUB_PATTERN);
}

static void confirm(struct ctx *c, const char *word, enum pubsub_kind kind, const bytes *name)
{
    struct reply out = writer(c);
    reply_push(&out, 3);
    reply_bulk_str(&out, word);
    if (name) reply_bulk(&out, *name);
    else reply_null(&out);
    reply_int(&out, (i64)counted(conn_of(c->session), kind));
}

static void subscribe(struct ctx *c, enum pubsub_kind kind)
{
    for (int i = 1; i < c->argc; i++) {
        pubsub_join(c->server, conn_of(c->session), kind, c->argv[i]);
        confirm(c, c->cmd->name, kind, &c->argv[i]);
    }
}

/* The name lives no longer than the subscription. */
static void leave_first(struct ctx *c, enum pubsub_kind kind, bytes name)
{
    struct buf copy = {0};
    buf_append_bytes(&copy, name);
    name = buf_bytes(&copy);
    pubsub_leave(c->server, conn_of(c->session), kind, name);
    confirm(c, c->cmd->name, kind, &name);
    buf_release(&copy);
}

static void unsubscribe(struct ctx *c, enum pubsub_kind kind)
{
    struct conn *x = conn_of(c->session);
    bytes name;
    for (int i = 1; i < c->argc; i++) {
        pubsub_leave(c->server, x, kind, c->argv[i]);
        confirm(c, c->cmd->name, kind, &c->argv[i]);
    }
    if (c->argc > 1) return;
    if (!pubsub_subscriptions(x, kind)) confirm(c, c->cmd->name, kind, NULL);
    while (pubsub_first(x, kind, &name)) leave_first(c, kind, name);
}

void cmd_subscribe(struct ctx *c) { subscribe(c, PUBSUB_CHANNEL); }
void cmd_psubscribe(struct ctx *c) { subscribe(c, PUBSUB_PATTERN); }

void cmd_ssubscribe(struct ctx *c)
{
    if (c->may_wait) subscribe(c, PUBSUB_SHARD);
    else reply_error(c->out, "ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client");
}

void cmd_unsubscribe(struct ctx *c) { unsubscribe(c, PUBSUB_CHANNEL); }
void cmd_punsubscribe(struct ctx *c) { unsubscribe(c, PUBSUB_PATTERN); }
void cmd_sunsubscribe(struct ctx *c) { unsubscribe(c, PUBSUB_SHARD); }

/* -- publishing -------------------------------------------------------------------------------------- */

/* Replicas have subscribers of their own. But where their position is stored with the data, nothing can be
 * sent to them while nothing can be stored. */
static void pubsub_publish_cmd(struct ctx *c, enum pubsub_kind kind)
{
    reply_int(c->out, (i64)pubsub_publish(c->server, kind, c->argv[1], c->argv[2]));
    if (UNLIKELY(c->server->cluster))
        cluster_publish(c->server, c->argv[1], c->argv[2], kind == PUBSUB_SHARD);
    if (ctx_node(c)->refuse_writes && c->eng->caps.durable) return;
    journal_message(c->ks->journal, c->db, 3, (bytes[]){bytes_str(c->cmd->name), c->argv[1], c->argv[2]});
}

void cmd_publish(struct ctx *c) { pubsub_publish_cmd(c, PUBSUB_CHANNEL); }
void cmd_spublish(struct ctx *c) { pubsub_publish_cmd(c, PUBSUB_SHARD); }

/* -- PUBSUB ------------------------------------------------------------------------------------------ */

struct listing {
    struct reply *out;
    size_t n;
};

static void list_name(void *arg, bytes name)
{
    struct listing *l = arg;
    reply_bulk(l->out, name);
    l->n++;
}

static void pubsub_list_names(struct ctx *c, enum pubsub_kind kind)
{
    struct listing l = {.out = c->out};
    if (c->argc > 3) {
        ctx_wrong_subcommand(c);
        return;
    }
    size_t mark = reply_mark(c->out);
    pubsub_names(&c->server->pubsub, kind, c->argc == 3 ? &c->argv[2] : NULL, list_name, &l);
    reply_array_at(c->out, mark, l.n);
}

static void count_subscribers(struct ctx *c, enum pubsub_kind kind)
{
    reply_array(c->out, ((size_t)c->argc - 2) * 2);
    for (int i = 2; i < c->argc; i++) {
        reply_bulk(c->out, c->argv[i]);
        reply_int(c->out, (i64)pubsub_subscribers(&c->server->pubsub, kind, c->argv[i]));
    }
}

void cmd_pubsub_channels(struct ctx *c) { pubsub_list_names(c, PUBSUB_CHANNEL); }
void cmd_pubsub_shardchannels(struct ctx *c) { pubsub_list_names(c, PUBSUB_SHARD); }
void cmd_pubsub_numsub(struct ctx *c) { count_subscribers(c, PUBSUB_CHANNEL); }
void cmd_pubsub_shardnumsub(struct ctx *c) { count_subscribers(c, PUBSUB_SHARD); }
void cmd_pubsub_numpat(struct ctx *c)
{
    reply_int(c->out, (i64)c->server->pubsub.names[PUBSUB_PATTERN].count);
}

void cmd_pubsub_help(struct ctx *c)
{
    static const char *const lines[] = {
        "CHANNELS [<pattern>]", "    The channels somebody is subscribed to (that match).",
        "NUMPAT", "    How many patterns somebody is subscribed to.",
        "NUMSUB [<channel> ...]",
        "    How many are subscribed to each of these channels; patterns don't count.",
        "SHARDCHANNELS [<pattern>]", "    The shard channels somebody is subscribed to (that match).",
        "SHARDNUMSUB [<shardchannel> ...]",
        "    How many are subscribed to each of these shard channels.", NULL,
    };
    ctx_help(c, lines);
}
