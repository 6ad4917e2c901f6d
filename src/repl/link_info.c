/* INFO, ROLE and CLIENT LIST of a replica's link. */
#include "repl/link.h"

static const char *link_info_state_name(const struct link *l)
{
    switch (l->state) {
    case LINK_DOWN: return "connect";
    case LINK_RESOLVING:
    case LINK_CONNECTING: return "connecting";
    case LINK_HANDSHAKE: return "handshake";
    case LINK_SYNC: return "sync";
    case LINK_UP: return "connected";
    }
    return "unknown";
}

bool link_is_to(const struct server *s, bytes host, int port)
{
    const struct link *l = s->repl.link;
    return l && l->port == port && bytes_is(host, l->host);
}

void link_role(struct ctx *c)
{
    const struct link *l = c->server->repl.link;
    reply_array(c->out, 5);
    reply_bulk_str(c->out, "slave");
    reply_bulk_str(c->out, l->host);
    reply_int(c->out, l->port);
    reply_bulk_str(c->out, link_info_state_name(l));
    reply_int(c->out, l->state == LINK_UP ? (i64)c->server->repl.stream.end : -1);
}

/* -- as a client of ours ---------------------------------------------------------------------------- */

bool link_as_client(const struct server *s, struct link_client *x)
{
    *x = (struct link_client){0};
    if (!link_is_up(s)) return false;
    x->id = s->repl.link->session.id;
    x->age_s = (link_now_ms(s->repl.link) - s->repl.link->up_ms) / 1000;
    net_addresses(s->repl.link->conn->fd, x->peer, x->local);
    return true;
}

static void link_info_print_buffers(const struct link *l, struct buf *out)
{
    const struct buf *in = &l->inbox.in;
    size_t args = l->argv_cap * sizeof *l->argv;
    buf_printf(out, " qbuf=%zu qbuf-free=%zu argv-mem=%zu multi-mem=0", in->n, in->cap - in->n, args);
    buf_printf(out, " rbs=%zu rbp=%zu obl=%zu oll=0 omem=0 tot-mem=%zu", l->out.cap, l->out.cap,
               l->out.n - l->sent, sizeof *l + in->cap + args + l->out.cap);
}

void link_describe(const struct server *s, const struct link_client *x, struct buf *out)
{
    const struct link *l = s->repl.link;
    i64 now = link_now_ms(l);
    buf_printf(out, "id=%llu addr=%s laddr=%s fd=%d name=", (ull)x->id, x->peer, x->local, l->conn->fd);
    buf_printf(out, " age=%lld idle=%lld flags=M db=%u", (long long)(now - l->up_ms) / 1000,
               (long long)(now - l->io_ms) / 1000, l->session.db);
    buf_append_str(out, " sub=0 psub=0 ssub=0 multi=-1 watch=0");
    link_info_print_buffers(l, out);
    buf_printf(out, " events=%s cmd=%s user=(superuser) redir=-1 resp=2 lib-name= lib-ver=",
               l->conn->events & UV_WRITABLE ? "rw" : "r", l->last_command ? l->last_command : "NULL");
}

/* -- INFO -------------------------------------------------------------------------------------------- */

static void sync_info(const struct link *l, struct buf *out)
{
    const struct transfer *t = &l->transfer;
    u64 left = t->size > t->received ? t->size - t->received : 0;
    buf_printf(out,
               "master_sync_total_bytes:%llu\r\nmaster_sync_read_bytes:%llu\r\n"
               "master_sync_left_bytes:%llu\r\nmaster_sync_perc:%.2f\r\n"
               "master_sync_last_io_seconds_ago:%lld\r\n",
               (unsigned long long)t->size, (unsigned long long)t->received, (unsigned long long)left,
               t->size ? 100.0 * (double)t->received / (double)t->size : 0,
               (long long)(link_now_ms(l) - l->io_ms) / 1000);
}

void link_info(struct server *s, struct buf *out)
{
    const struct link *l = s->repl.link;
    const struct config *c = &s->config;
    bool up = l->state == LINK_UP;
    u64 position = up || s->repl.stream.end ? s->repl.stream.end : 1; /* as Redis before the first sync */
    i64 now = link_now_ms(l);
    buf_printf(out,
               "master_host:%s\r\nmaster_port:%d\r\nmaster_link_status:%s\r\n"
               "master_last_io_seconds_ago:%lld\r\nmaster_sync_in_progress:%d\r\n"
               "slave_read_repl_offset:%llu\r\nslave_repl_offset:%llu\r\n",
               l->host, l->port, up ? "up" : "down", up ? (long long)(now - l->io_ms) / 1000 : -1,
               l->state == LINK_SYNC, (unsigned long long)position + (up ? l->inbox.in.n : 0),
               (unsigned long long)position);
    if (l->state == LINK_SYNC) sync_info(l, out);
    if (!up)
        buf_printf(out, "master_link_down_since_seconds:%lld\r\n",
                   l->down_ms ? (long long)(now - l->down_ms) / 1000 : -1);
    buf_printf(out, "slave_priority:%lld\r\nslave_read_only:%d\r\nreplica_announced:%d\r\n",
               (long long)c->replica_priority, c->replica_read_only, c->replica_announced);
}
