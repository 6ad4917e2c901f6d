/* A tick in cluster mode: which requests run here, which wait, and what their replies wait for. */
#include <stdio.h>

#include "cluster/cluster_parts.h"
#include "command/commands.h"
#include "exec/multi.h"
#include "exec/route.h"

/* DEBUG POPULATE: the rest of DEBUG changes no data, and has to work when there is no quorum. */
static bool is_populate(const struct command *cmd, const bytes *argv)
{
    return cmd->run == cmd_debug && bytes_is(argv[1], "populate");
}

/* Every member of a slot takes its subscribers and messages, also without a leader: they are no data. */
static bool is_shard_pubsub(const struct command *cmd)
{
    return cmd->run == cmd_ssubscribe || cmd->run == cmd_sunsubscribe || cmd->run == cmd_spublish;
}

/* Whether a command reads or changes the region's data. One that waits in MULTI's queue does not yet. */
static bool touches_data(const struct command *cmd, const struct session *s, const bytes *argv)
{
    if (cmd->run == cmd_exec) return true;
    if (is_shard_pubsub(cmd) || (s->tx && multi_takes(s, cmd))) return false;
    if (cmd->run == cmd_cluster_keys || cmd->run == cmd_bgsave) return true; /* a backup is confirmed */
    return cmd->flags & CMD_OF_KEYSPACE || cmd->specs[0].begin != SEEK_NONE || is_populate(cmd, argv);
}

/* The command of a request, which may be refused yet; NULL: there is none. */
static const struct command *command_of(const struct server *s, const struct net_request *q)
{
    const bytes *argv = s->net.tick.args + q->argv_at;
    const struct command *cmd = q->argc ? node_find(&s->node, argv[0]) : NULL;
    if (cmd && cmd->sub_count) cmd = q->argc > 1 ? command_find_sub(cmd, argv[1]) : NULL;
    return cmd && command_takes(cmd, (int)q->argc) ? cmd : NULL;
}

void cluster_begin_tick(struct server *s, i64 wall_ms) { member_begin_tick(&s->cluster->member, wall_ms); }

void cluster_enforce(struct server *s, const struct net_request *q)
{
    struct cluster *c = s->cluster;
    const struct command *cmd = NULL;
    if (s->node.script ||
        c->member.in_flight) { /* a request of a turn within the turn, or one that may wait */
        fence_enforce(&s->net, NULL);
        return;
    }
    if (q) cmd = command_of(s, q);
    member_enforce(&c->member,
                   !q || (cmd && touches_data(cmd, &q->conn->session, s->net.tick.args + q->argv_at)));
}

bool cluster_leads(const struct server *s) { return member_leads(&s->cluster->member); }

/* A tick's changes are proposed at its end, and nothing else is meanwhile. */
u64 cluster_next_index(struct server *s)
{
    struct cluster *c = s->cluster;
    struct group_status st;
    if (c->next_index && c->next_index_tick == s->net.tick.number) return c->next_index;
    group_status(c->member.group, &st);
    c->next_index_tick = s->net.tick.number;
    return c->next_index = st.core.last_index + 1;
}

u32 cluster_acknowledged(const struct server *s, u64 index)
{
    return group_acknowledged(s->cluster->member.group, index);
}

bool cluster_synced(const struct server *s, u64 index)
{
    struct group_status st;
    group_status(s->cluster->member.group, &st);
    return st.core.persisted >= index;
}

bool cluster_commit(struct server *s, enum commit_kind kind)
{
    struct member *m = &s->cluster->member;
    switch (kind) {
    case COMMIT_TICK:
        cluster_expire_with_tick(s->cluster);
        fence_enforce(&s->net, NULL);
        member_end_tick(m);
        bus_flush(s->cluster->bus); /* this tick may be the last thing before the loop sleeps */
        return true;
    case COMMIT_PART:
        return false; /* what a tick did is one entry: a long script's part of it can't be split off */
    case COMMIT_LOAD_PART:
    case COMMIT_LOAD_END: /* a snapshot that is installed: aside, then with member_adopt */
        lone_region(s)->eng->relaxed = kind == COMMIT_LOAD_PART;
        bool kept = region_commit(lone_region(s));
        lone_region(s)->eng->relaxed = false;
        return kept;
    case COMMIT_EXPIRY:
        if (m->expiring) {
            cluster_end_expiry(s->cluster);
            return true;
        } /* fall through */
    default: return m->in_flight || m->evaluating || member_commit_reclaim(m);
    }
}

static bool reads_only(const struct command *cmd)
{
    return cmd->flags & CMD_READONLY && !(cmd->flags & CMD_WRITE);
}

/* A READONLY connection may read on any member. */
static bool may_follow(const struct request *q, const struct command *cmd)
{
    return q->session->readonly && reads_only(cmd);
}

static bool may_be_stale(const struct server *s) { return s->config.cluster_allow_stale_reads; }

static const struct cluster_node *leader_of(struct cluster *c)
{
    u64 leader = c->started ? group_leader(c->member.group) : 0;
    const struct cluster_node *n = leader ? cluster_node_of(c, leader) : NULL;
    return n && n != c->nodes ? n : NULL;
}

const char *cluster_elsewhere(void *owner, const struct request *q, const struct command *cmd)
{
    struct server *s = owner;
    struct cluster *c = s->cluster;
    const struct member *m = &c->member;
    bool queued = q->session->tx && cmd->flags & CMD_OF_KEYSPACE;
    if (!queued && !touches_data(cmd, q->session, q->argv)) return NULL;
    if (c->diverged) return "CLUSTERDOWN The data of this node differs from that of the others";
    if (m->in_flight || m->evaluating || member_leads(m))
        return NULL; /* a leader that can't evaluate yet: it waits */
    bool writes = cmd->flags & CMD_WRITE || cmd->run == cmd_exec || is_populate(cmd, q->argv);
    if (q->slot == SLOT_NONE && !writes) return NULL; /* KEYS, DBSIZE …: what this node has */
    bool failed = member_read_failed(m, &q->session->read_wanted);
    if (may_follow(q, cmd) && ((!failed && group_leader(m->group)) || may_be_stale(s))) return NULL;
    const struct cluster_node *n = leader_of(c);
    if (!n) return "CLUSTERDOWN The cluster is down";
    if (q->slot == SLOT_NONE) return "READONLY You can't write against a read only replica.";
    snprintf(c->moved, sizeof c->moved, "MOVED %d %s:%d", q->slot, n->host, n->port);
    return c->moved;
}

u32 cluster_holds(struct server *s, const struct request *q, const struct command *cmd)
{
    struct cluster *c = s->cluster;
    struct member *m = &c->member;
    if (!touches_data(cmd, q->session, q->argv) || m->evaluating) return 0;
    if (m->in_flight || member_leads(m)) return HOLD_RAFT;
    if (!may_follow(q, cmd) || q->slot == SLOT_NONE || may_be_stale(s)) return 0;
    return member_may_read(m, &q->session->read_wanted) ? 0 : HOLD_RAFT;
}
