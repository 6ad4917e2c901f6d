/* A migration: the protocol with the target. See migrate.h. */
#include "server/client/migrate.h"

#include <stdio.h>

#include "base/alloc.h"
#include "exec/key_listeners.h"
#include "server/server.h"

#define LINE_MAX_BYTES (64u << 10) /* the longest valid reply line */

/* -- life ---------------------------------------------------------------------------------------- */

struct migration *migration_new(struct server *s, u32 keys)
{
    struct migration *m = mem_zalloc(sizeof *m);
    m->server = s;
    m->keys = mem_zalloc((keys ? keys : 1) * sizeof *m->keys);
    m->tcp.data = m->timer.data = m->resolve.data = m->connect.data = m->write.data = m;
    return m;
}

static void migration_free(struct migration *m)
{
    if (m->addresses) uv_freeaddrinfo(m->addresses);
    buf_release(&m->greeting);
    buf_release(&m->commands);
    buf_release(&m->in);
    mem_free(m);
}

/* A request of libuv's is over, or a handle is closed. */
static void migration_unref(struct migration *m)
{
    if (--m->open == 0 && !m->keys) migration_free(m);
}

static void migration_on_closed(uv_handle_t *h) { migration_unref(h->data); }

static void migration_close(struct migration *m, uv_handle_t *h)
{
    if (m->open && !uv_is_closing(h)) uv_close(h, migration_on_closed);
}

/* The outcome is known; NULL: no error, or the one that is noted already. */
static void migration_end(struct migration *m, const char *error)
{
    if (m->stage == MIGRATE_DONE) return;
    if (error && !m->error[0]) snprintf(m->error, sizeof m->error, "%s", error);
    if (m->stage == MIGRATE_CONNECT) uv_cancel((uv_req_t *)&m->resolve); /* if it has not started */
    m->stage = MIGRATE_DONE;
    migration_close(m, (uv_handle_t *)&m->tcp);
    migration_close(m, (uv_handle_t *)&m->timer);
    if (m->conn) conn_resume(m->conn, HOLD_MIGRATE);
}

void migration_drop(struct migration *m)
{
    if (m->conn) m->conn->migration = NULL;
    m->conn = NULL;
    if (m->open) migration_end(m, NULL);
    for (u32 i = 0; i < m->count; i++) {
        watch_none(&m->keys[i].watcher);
        buf_release(&m->keys[i].name);
    }
    mem_free(m->keys);
    m->keys = NULL;
    if (!m->open) migration_free(m);
}

void migrate_forget(struct conn *c)
{
    if (UNLIKELY(c->migration != NULL)) migration_drop(c->migration);
}

void migrate_distrust(struct server *s)
{
    for (struct conn *c = s->net.conns; c; c = c->next)
        if (c->migration) c->migration->distrusted = true;
}

/* -- time ---------------------------------------------------------------------------------------- */

static void migration_lost(struct migration *m)
{
    bool writing = m->stage != MIGRATE_CONNECT && uv_stream_get_write_queue_size((uv_stream_t *)&m->tcp);
    migration_end(m, m->stage == MIGRATE_CONNECT ? "IOERR error or timeout connecting to the client"
                     : writing                   ? "IOERR error or timeout writing to target instance"
                                                 : "IOERR error or timeout reading to target instance");
}

static void migration_on_timeout(uv_timer_t *t)
{
    struct migration *m = t->data;
    size_t unsent = m->stage == MIGRATE_CONNECT ? 0 : uv_stream_get_write_queue_size((uv_stream_t *)&m->tcp);
    if (!m->received && unsent >= m->unsent) {
        migration_lost(m);
        return;
    }
    m->received = false;
    m->unsent = unsent;
}

/* -- the protocol ---------------------------------------------------------------------------- */

static void on_written(uv_write_t *w, int status)
{
    struct migration *m = w->data;
    if (status < 0 && m->stage != MIGRATE_DONE) migration_lost(m);
    migration_unref(m);
}

static void migration_send(struct migration *m, struct buf *what)
{
    uv_buf_t b = {.base = what->p, .len = what->n};
    m->unsent = what->n;
    m->received = true; /* the timeout starts again */
    if (uv_write(&m->write, (uv_stream_t *)&m->tcp, &b, 1, on_written)) migration_lost(m);
    else m->open++;
}

static void note_refusal(struct migration *m, bytes line)
{
    int n = (int)MIN(line.n - 1, (size_t)MIGRATE_ERROR_MAX);
    if (!m->error[0])
        snprintf(m->error, sizeof m->error, "ERR Target instance replied with error: %.*s", n, line.p + 1);
}

/* The keys are sent only after the target accepted the password and the database: in another database they
 * would be misplaced. */
static void migration_answer(struct migration *m, bytes line)
{
    bool refused = line.n && line.p[0] == '-';
    if (refused) note_refusal(m, line);
    if (m->stage == MIGRATE_GREET) {
        if (refused) {
            migration_end(m, NULL);
        } else if (--m->greetings == 0) {
            m->stage = MIGRATE_RESTORE;
            migration_send(m, &m->commands);
        }
        return;
    }
    m->keys[m->answered++].taken = line.n && line.p[0] == '+';
    if (m->answered == m->count) migration_end(m, NULL);
}

static void on_alloc(uv_handle_t *h, size_t hint UNUSED, uv_buf_t *to)
{
    struct migration *m = h->data;
    to->base = buf_reserve(&m->in, 4096);
    to->len = 4096;
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *from UNUSED)
{
    struct migration *m = stream->data;
    if (n < 0) migration_lost(m);
    if (n <= 0) return;
    m->in.n += (size_t)n;
    m->received = true;
    size_t used = 0;
    const char *end;
    while (m->stage != MIGRATE_DONE && (end = memchr(m->in.p + used, '\n', m->in.n - used))) {
        bytes line = bytes_of(m->in.p + used, (size_t)(end - m->in.p) - used);
        used += line.n + 1;
        if (line.n && line.p[line.n - 1] == '\r') line.n--;
        migration_answer(m, line);
    }
    m->in.n -= used;
    memmove(m->in.p, m->in.p + used, m->in.n);
    if (m->stage != MIGRATE_DONE && m->in.n > LINE_MAX_BYTES) migration_lost(m);
}

/* -- connecting ---------------------------------------------------------------------------------- */

static void connect_next(struct migration *m);

static void on_refused_closed(uv_handle_t *h)
{
    struct migration *m = h->data;
    if (m->stage == MIGRATE_DONE) {
        migration_unref(m);
        return;
    }
    uv_tcp_init(&m->server->loop, &m->tcp);
    connect_next(m);
}

static void on_connected(uv_connect_t *req, int status)
{
    struct migration *m = req->data;
    bool done = m->stage == MIGRATE_DONE;
    migration_unref(m); /* the handles still have references */
    if (done) return;
    if (status < 0 && m->next_address) {
        uv_close((uv_handle_t *)&m->tcp, on_refused_closed);
        return;
    }
    if (status < 0 || uv_read_start((uv_stream_t *)&m->tcp, on_alloc, on_read)) {
        migration_lost(m);
        return;
    }
    uv_tcp_nodelay(&m->tcp, 1);
    m->stage = MIGRATE_GREET;
    migration_send(m, &m->greeting);
}

static void connect_next(struct migration *m)
{
    int rc = UV_EADDRNOTAVAIL;
    while (rc && m->next_address) {
        const struct addrinfo *a = m->next_address;
        m->next_address = a->ai_next;
        rc = uv_tcp_connect(&m->connect, &m->tcp, a->ai_addr, on_connected);
    }
    if (rc) migration_lost(m);
    else m->open++;
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
    struct migration *m = req->data;
    bool done = m->stage == MIGRATE_DONE;
    m->addresses = m->next_address = list;
    migration_unref(m);
    if (done) return;
    if (status < 0) migration_lost(m);
    else connect_next(m);
}

bool migration_start(struct migration *m, struct conn *c, const char *host, int port)
{
    uv_loop_t *loop = &m->server->loop;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char text[16];
    snprintf(text, sizeof text, "%d", port);
    if (uv_getaddrinfo(loop, &m->resolve, on_resolved, host, text, &hints)) return false;
    uv_tcp_init(loop, &m->tcp);
    uv_timer_init(loop, &m->timer);
    m->open = 3;
    m->conn = c;
    c->migration = m;
    uv_update_time(loop);
    uv_timer_start(&m->timer, migration_on_timeout, (u64)m->timeout_ms, (u64)m->timeout_ms);
    return true;
}
