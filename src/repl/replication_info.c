/* INFO replication, line by line as Redis 7.0 prints it. */
#include "base/clock.h"
#include "repl/primary.h"

static const char *replication_info_state_name(const struct replica *r)
{
    switch (r->state) {
    case REPLICA_WAITS: return "wait_bgsave";
    case REPLICA_RECEIVES: return r->sync->disk && r->sync->fd >= 0 ? "send_bulk" : "wait_bgsave";
    case REPLICA_ONLINE: return "online";
    default: return NULL;
    }
}

static void replication_info_replica(const struct replica *r, u32 at, struct buf *b)
{
    char host[REPLICA_HOST];
    i64 lag = r->state == REPLICA_ONLINE ? clock_mono_ms() / 1000 - r->heard_s : 0;
    replica_host(r, host);
    buf_printf(b, "slave%u:ip=%s,port=%d,state=%s,offset=%llu,lag=%lld\r\n", at, host, r->port,
               replication_info_state_name(r), (ull)r->acknowledged, (long long)MAX(lag, 0));
}

void replication_info(struct server *s, struct buf *b)
{
    const struct replication *r = &s->repl;
    const struct repl_stream *stream = &r->stream;
    const struct config *c = &s->config;
    buf_printf(b, "role:%s\r\n", r->link ? "slave" : "master");
    if (r->link) link_info(s, b);
    buf_printf(b, "connected_slaves:%u\r\n", r->replica_count);
    if (c->min_replicas_to_write && c->min_replicas_max_lag)
        buf_printf(b, "min_slaves_good_slaves:%u\r\n", r->good_replicas);
    u32 at = 0;
    for (const struct replica *x = r->replicas; x; x = x->next)
        if (replication_info_state_name(x)) replication_info_replica(x, at++, b);
    buf_printf(b,
               "master_failover_state:%s\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\n"
               "master_repl_offset:%llu\r\nsecond_repl_offset:%lld\r\nrepl_backlog_active:%d\r\n"
               "repl_backlog_size:%lld\r\nrepl_backlog_first_byte_offset:%llu\r\n"
               "repl_backlog_histlen:%llu\r\n",
               failover_name(r->failover.state), stream->id, stream->id2, (ull)stream->end,
               stream->id2_end >= 0 ? (long long)stream->id2_end + 1 : -1LL, r->streaming,
               (long long)c->repl_backlog_size, r->streaming ? (ull)stream->begin + 1 : 0,
               r->streaming ? (ull)(stream->end - stream->begin) : 0);
}
