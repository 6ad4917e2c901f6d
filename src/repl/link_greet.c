/* The handshake with our primary: AUTH, REPLCONF, and PSYNC with the position to continue from. Log texts are
 * Redis's. */
#include <stdio.h>

#include "repl/link.h"

static void introduce_ourselves(struct link *l)
{
    const struct config *c = &l->server->config;
    char port[16], site[16];
    l->authenticates = c->masterauth.n > 0;
    l->announces_ip = c->replica_announce_ip.n > 0;
    bytes auth = BYTES_LIT("AUTH"), password = buf_bytes(&c->masterauth); /* may contain any byte */
    if (l->authenticates && c->masteruser.n)
        link_command_bytes(l, 3, (bytes[]){auth, buf_bytes(&c->masteruser), password});
    else if (l->authenticates)
        link_command_bytes(l, 2, (bytes[]){auth, password});
    i64 own = c->tls_replication && c->tls_port ? c->tls_port : c->port;
    snprintf(port, sizeof port, "%d", (int)(c->replica_announce_port ? c->replica_announce_port : own));
    link_command(l, 3, (const char *const[]){"REPLCONF", "listening-port", port});
    if (l->announces_ip)
        link_command(l, 3, (const char *const[]){"REPLCONF", "ip-address", c->replica_announce_ip.p});
    snprintf(site, sizeof site, "%d", (int)c->site_id);
    if (c->site_id) link_command(l, 3, (const char *const[]){"REPLCONF", "site-id", site});
    link_command(l, 5, (const char *const[]){"REPLCONF", "capa", "eof", "capa", "psync2"});
    l->answer = l->authenticates ? ANSWER_AUTH : ANSWER_PORT;
    link_flush(l);
}

/* Asks by whatever history our data belongs to, even one that was our own: the primary knows whether its
 * history continues it. At position 0 of a history that is not the primary's there is nothing to continue; a
 * failover's target has our own history, whatever its length, and wants to be asked by its name. */
static void ask_for_stream(struct link *l)
{
    const struct repl_stream *st = &l->server->repl.stream;
    const struct log *log = &l->server->log;
    char next[32];
    bool failover = l->server->repl.failover.state == FAILOVER_HANDS_OVER;
    bool partial = !l->no_partial && (st->end > 0 || l->adopted || failover);
    snprintf(next, sizeof next, "%lld", partial ? (long long)st->end + 1 : -1);
    if (partial)
        log_line(log, LOG_NOTICE, "Trying a partial resynchronization (request %s:%s).", st->id, next);
    else
        log_line(log, LOG_NOTICE, "Partial resynchronization not possible (no cached master)");
    const char *id = partial ? st->id : "?";
    link_command(l, failover ? 4 : 3, (const char *const[]){"PSYNC", id, next, "FAILOVER"});
    l->answer = ANSWER_PSYNC;
    link_flush(l);
}

static void full_sync(struct link *l, const char *line)
{
    unsigned long long position;
    int end = 0;
    if (sscanf(line, "+FULLRESYNC %40[0-9a-zA-Z] %llu%n", l->id, &position, &end) != 2 || !end ||
        strlen(l->id) != REPL_ID) {
        log_line(&l->server->log, LOG_WARNING, "Master replied with wrong +FULLRESYNC syntax.");
        link_close(l, false);
        return;
    }
    log_line(&l->server->log, LOG_NOTICE, "Full resync from master: %s:%llu", l->id, position);
    l->position = position;
    sync_begin(l);
}

static void partial_sync(struct link *l, const char *line)
{
    struct server *s = l->server;
    struct repl_stream *st = &s->repl.stream;
    char id[REPL_ID + 2] = "";
    log_line(&s->log, LOG_NOTICE, "Successful partial resynchronization with master.");
    if (sscanf(line, "+CONTINUE %41s", id) == 1 && strlen(id) == REPL_ID && strcmp(id, st->id) != 0) {
        repl_stream_rename(st, id);
        log_line(&s->log, LOG_WARNING, "Master replication ID changed to %s", id);
        replication_note(s);
        replication_drop_replicas(s); /* they learn the new name when they reconnect */
    }
    log_line(&s->log, LOG_NOTICE, "MASTER <-> REPLICA sync: Master accepted a Partial Resynchronization.");
    link_up(l);
}

/* The history that follows then has no name: nothing can resume it. */
static void fall_back_to_sync(struct link *l)
{
    log_line(&l->server->log, LOG_NOTICE, "Retrying with SYNC...");
    l->old_primary = true;
    server_random_id(l->id);
    l->position = 0;
    buf_append_str(&l->out, "SYNC\r\n");
    link_flush(l);
    if (l->conn) sync_begin(l);
}

static bool link_greet_begins(const char *line, const char *with)
{
    return strncmp(line, with, strlen(with)) == 0;
}

static void answer_to_psync(struct link *l, const char *line)
{
    const struct log *log = &l->server->log;
    bool agreed = line[0] == '+';
    if (UNLIKELY(l->server->repl.failover.state == FAILOVER_HANDS_OVER)) {
        failover_answered(l->server, agreed);
        if (!agreed) {
            link_close(l, false);
            return;
        }
    }
    if (link_greet_begins(line, "+FULLRESYNC")) {
        full_sync(l, line);
    } else if (link_greet_begins(line, "+CONTINUE")) {
        partial_sync(l, line);
    } else if (link_greet_begins(line, "-NOMASTERLINK") || link_greet_begins(line, "-LOADING")) {
        log_line(log, LOG_NOTICE, "Master is currently unable to PSYNC but should be in the future: %s",
                 line);
        if (link_greet_begins(line, "-NOMASTERLINK")) link_is_refused(l);
        link_close(l, false);
    } else if (link_greet_begins(line, "-ERR")) {
        log_line(log, LOG_NOTICE, "Master does not support PSYNC or is in error state (reply: %s)", line);
        fall_back_to_sync(l);
    } else {
        log_line(log, LOG_WARNING, "Unexpected reply to PSYNC from master: %s", line);
        link_close(l, false);
    }
}

static void answer_to_ping(struct link *l, const char *line)
{
    const struct log *log = &l->server->log;
    if (line[0] != '+' && !link_greet_begins(line, "-NOAUTH") && !link_greet_begins(line, "-NOPERM") &&
        !link_greet_begins(line, "-ERR operation not permitted")) {
        log_line(log, LOG_WARNING, "Error reply to PING from master: '%s'", line);
        link_close(l, false);
        return;
    }
    log_line(log, LOG_NOTICE, "Master replied to PING, replication can continue...");
    introduce_ourselves(l);
}

static void answer_to_replconf(struct link *l, const char *line, const char *what, enum link_answer next)
{
    if (line[0] == '-')
        log_line(&l->server->log, LOG_NOTICE, "(Non critical) Master does not understand REPLCONF %s: %s",
                 what, line);
    l->answer = next;
}

/* Its data would not be that of our site. */
static void answer_to_site(struct link *l, const char *line)
{
    l->answer = ANSWER_CAPA;
    if (line[0] != '-') return;
    log_line(&l->server->log, LOG_WARNING,
             "This is a replica of site %d, and that is not the site of MASTER: %s",
             (int)l->server->config.site_id, line);
    failover_answered(l->server, false);
    link_close(l, false);
}

static void handle_answer(struct link *l, const char *line)
{
    enum link_answer after = l->server->config.site_id ? ANSWER_SITE : ANSWER_CAPA;
    switch (l->answer) {
    case ANSWER_PING: answer_to_ping(l, line); break;
    case ANSWER_AUTH:
        l->answer = ANSWER_PORT;
        if (line[0] != '-') break;
        log_line(&l->server->log, LOG_WARNING, "Unable to AUTH to MASTER: %s", line);
        link_close(l, false);
        break;
    case ANSWER_PORT:
        answer_to_replconf(l, line, "listening-port", l->announces_ip ? ANSWER_IP : after);
        break;
    case ANSWER_IP: answer_to_replconf(l, line, "ip-address", after); break;
    case ANSWER_SITE: answer_to_site(l, line); break;
    case ANSWER_CAPA:
        answer_to_replconf(l, line, "capa", ANSWER_PSYNC);
        ask_for_stream(l);
        break;
    case ANSWER_PSYNC:
        if (line[0]) answer_to_psync(l, line); /* an empty line: it is alive, and not ready yet */
        break;
    }
}

/* Removes a line, without its line end, from the bytes received. */
static bool link_greet_next_line(struct link *l, char line[TRANSFER_LINE + 1])
{
    const char *nl = memchr(l->in.p, '\n', l->in.n);
    size_t n = nl ? (size_t)(nl - l->in.p) : 0;
    if (!nl || n > TRANSFER_LINE) return false;
    memcpy(line, l->in.p, n);
    line[n] = '\0';
    if (n && line[n - 1] == '\r') line[n - 1] = '\0';
    l->in.n -= n + 1;
    memmove(l->in.p, nl + 1, l->in.n);
    return true;
}

void greet_begin(struct link *l)
{
    l->state = LINK_HANDSHAKE;
    l->answer = ANSWER_PING;
    l->old_primary = false;
    l->io_ms = link_now_ms(l);
    link_watch(l, UV_READABLE);
    link_command(l, 1, (const char *const[]){"PING"});
    link_flush(l);
}

/* A reply may end the link itself (a refused failover). The connection is freed only when libuv has closed
 * its handles, so it can tell. */
void greet_readable(struct link *l)
{
    struct link_conn *c = l->conn;
    char line[TRANSFER_LINE + 1];
    size_t n = link_read(l, buf_reserve(&l->in, 2 * TRANSFER_LINE), 2 * TRANSFER_LINE);
    if (!c->link) return;
    l->in.n += n;
    while (c->link && l->state == LINK_HANDSHAKE && l->in.n && link_greet_next_line(l, line))
        handle_answer(l, line);
    if (!c->link || l->state != LINK_HANDSHAKE || l->in.n <= TRANSFER_LINE) return;
    log_line(&l->server->log, LOG_WARNING,
             "Bad protocol from MASTER during the handshake: a line without end");
    link_close(l, false);
}
