/* cluster-recover: when the majority of a cluster is lost for good, a remaining node becomes the only voter,
 * with the data it has. Acknowledged writes that are only on the lost disks are lost.
 *
 * The node becomes the only voter of a cluster with a new number, so that nodes of the old cluster can't talk
 * to it if they return. The directive contains the old number, so that it has no effect when it is given
 * again.
 *
 * The whole log counts, committed or not, because the other nodes can't be asked how far it was acknowledged.
 * Unapplied entries that change the members are replaced by empty ones. */
#include <stdio.h>

#include "cluster/cluster_parts.h"

#define RECOVER_WORD "accept-data-loss-of-"

struct log_tail {
    struct rocks_log_batch *batch;
    u64 region;
    u32 emptied;
};

static bool is_about_nodes(const struct rocks_log_entry *e)
{
    struct raft_command command;
    if (e->type != RAFT_ENTRY_NORMAL) return true;
    return e->data.n && raft_command_decode(e->data, &command) == OK && command.kind == RAFT_KIND_NODE;
}

static bool look_at_entry(void *arg, const struct rocks_log_entry *e)
{
    struct log_tail *t = arg;
    struct rocks_log_entry empty = {.index = e->index, .term = e->term, .type = RAFT_ENTRY_NORMAL};
    if (!is_about_nodes(e)) return true;
    rocks_log_put(t->batch, t->region, &empty);
    t->emptied++;
    return true;
}

/* False: the log can't be read or written. */
static bool empty_tail(struct cluster *c, const struct member *m)
{
    struct rocks *db = c->server->rocks;
    struct rocks_log *log = rocks_log_open(db);
    struct log_tail tail = {rocks_log_batch_open(db), m->number, 0};
    struct rocks_log_state st;
    bool ok = rocks_log_load(log, m->number, &st);
    if (ok && st.last_index > m->at.index)
        ok = rocks_log_read(log, m->number, m->at.index + 1, st.last_index + 1, look_at_entry, &tail);
    if (ok && tail.emptied) ok = rocks_log_write(tail.batch, true);
    rocks_log_batch_close(tail.batch);
    rocks_log_close(log);
    return ok;
}

static void forget_others(struct cluster *c)
{
    for (struct cluster_node *n; (n = c->nodes->next);) {
        log_line(&c->server->log, LOG_WARNING, "Recovery: node %.8s at %s:%d is given up.", n->id, n->host,
                 n->port);
        c->nodes->next = n->next;
        mem_free(n);
    }
}

static void become_the_only_voter(struct member *m)
{
    m->at.conf = (struct raft_conf){.voters = {m->peer}, .voters_n = 1};
    m->at.epoch.conf_ver++;
}

/* Region 0's state is stored with the cluster's new number, after those of all others. */
static bool recover_region(struct member *m)
{
    if (m->at.index && empty_tail(m->cluster, m)) {
        become_the_only_voter(m);
        member_adopt(m, &m->at);
        if (region_commit(m->region)) {
            region_begin(m->region, member_clock(m));
            return true;
        }
    }
    log_line(&m->server->log, LOG_WARNING, "Recovery: region %llu can't be read or written.", (ull)m->number);
    return false;
}

static bool recover_now(struct cluster *c)
{
    const struct log *log = &c->server->log;
    struct member *m = cluster_meta(c);
    log_line(log, LOG_WARNING,
             "Recovery: this node leaves cluster %llx and goes on alone with what it has, entries up to %llu "
             "applied. Writes that only lost nodes had are lost.",
             (ull)c->number, (ull)m->at.index);
    for (u32 i = c->members_n; i-- > 1;)
        if (!recover_region(c->members[i])) return false;
    if (!empty_tail(c, m)) {
        log_line(log, LOG_WARNING, "Recovery: the log can't be read or written. Nothing was changed.");
        return false;
    }
    forget_others(c);
    become_the_only_voter(m);
    c->diverged = 0;
    c->number = rand_next(&m->region->seeds) | 1;
    log_line(log, LOG_WARNING,
             "Recovery: this is cluster %llx now. Start other nodes with empty folders and cluster-join; "
             "never start one again with the data of the old cluster.",
             (ull)c->number);
    return true;
}

static void refuse_recovery(struct cluster *c)
{
    const struct raft_conf *conf = &cluster_meta(c)->at.conf;
    log_line(&c->server->log, LOG_WARNING,
             "cluster-recover makes this node the only voter of a new cluster, with what it has: of %u "
             "voters it may lack what the others have acknowledged without it. Use it only if most of them "
             "are lost for good and will never be started again. To do it, start once with "
             "--cluster-recover " RECOVER_WORD "%llx",
             conf->voters_n, (ull)c->number);
}

bool cluster_recover(struct cluster *c)
{
    const char *said = c->server->config.cluster_recover.p;
    char word[64];
    if (!c->server->config.cluster_recover.n) return true;
    if (!c->number || !cluster_meta(c)->at.conf.voters_n) {
        log_line(&c->server->log, LOG_WARNING,
                 "cluster-recover: this node has no data of a cluster to recover");
        return false;
    }
    snprintf(word, sizeof word, RECOVER_WORD "%llx", (ull)c->number);
    if (strcmp(said, word) == 0) return recover_now(c);
    if (strncmp(said, RECOVER_WORD, strlen(RECOVER_WORD)) == 0) {
        log_line(&c->server->log, LOG_WARNING,
                 "cluster-recover names another cluster than this node's, %llx: nothing to recover.",
                 (ull)c->number);
        return true;
    }
    refuse_recovery(c);
    return false;
}
