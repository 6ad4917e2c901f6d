/* In place of cluster mode in a build without the Raft library (make RAFT=no). */
#include "cluster/cluster.h"
#include "command/commands.h"
#include "server/server.h"

bool cluster_start(struct server *s)
{
    log_line(&s->log, LOG_WARNING,
             "This build has no cluster mode: it was made without the Raft library "
             "(make RAFT=no)");
    return false;
}

void cluster_stop(struct server *s UNUSED) {}
bool cluster_leaves(struct server *s UNUSED, u32 how UNUSED) { return false; }
void cluster_info(struct server *s UNUSED, struct buf *b) { buf_append_str(b, "cluster_enabled:0\r\n"); }

bool cluster_diverge(struct server *s UNUSED, bytes key UNUSED) { return false; }
bool cluster_figures(struct server *s UNUSED, u32 i UNUSED, struct cluster_figures *f UNUSED)
{
    return false;
}

/* The rest is called in cluster mode only. */
void cluster_begin_tick(struct server *s UNUSED, i64 wall_ms UNUSED) {}
void cluster_ran(struct region *r UNUSED) {}
bool cluster_serve(struct server *s UNUSED, struct region *r UNUSED) { return false; }
bool cluster_commit(struct server *s UNUSED, enum commit_kind kind UNUSED) { return false; }
u32 cluster_holds(struct server *s UNUSED, const struct request *q UNUSED, const struct command *c UNUSED)
{
    return 0;
}
bool cluster_may_reclaim(const struct server *s UNUSED, const struct region *r UNUSED) { return true; }
bool cluster_unsettled(const struct region *r) { return !region_settled(r); }
bool cluster_has_dead(const struct region *r UNUSED, i64 deadline_ms, i64 now_ms)
{
    return deadline_ms <= now_ms;
}
i64 cluster_next_visit(const struct region *r UNUSED, i64 deadline_ms, i64 now_ms UNUSED)
{
    return deadline_ms;
}
bool cluster_leads(const struct server *s UNUSED) { return false; }
u64 cluster_next_index(struct server *s UNUSED, struct region *r UNUSED) { return 0; }
u32 cluster_acknowledged(const struct server *s UNUSED, u64 region UNUSED, u64 index UNUSED) { return 0; }
bool cluster_synced(const struct server *s UNUSED, u64 region UNUSED, u64 index UNUSED) { return false; }
u32 cluster_saved(struct server *s UNUSED, struct keyspace ***all UNUSED) { return 0; }
void cluster_save_aux(struct server *s UNUSED, struct rdb_out *out UNUSED) {}
void cluster_begin_reclaim(struct region *r UNUSED) {}
void cluster_publish(struct server *s UNUSED, bytes channel UNUSED, bytes message UNUSED, bool sharded UNUSED)
{
}

static void refuse(struct ctx *c) { reply_error(c->out, "ERR This instance has cluster support disabled"); }
void cmd_cluster(struct ctx *c) { refuse(c); }
void cmd_cluster_keys(struct ctx *c) { refuse(c); }
void cmd_readonly(struct ctx *c) { refuse(c); }
void cmd_readwrite(struct ctx *c) { refuse(c); }
void cmd_asking(struct ctx *c) { refuse(c); }
