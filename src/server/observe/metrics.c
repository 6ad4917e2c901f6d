/* See metrics.h. libmicrohttpd serves HTTP without a thread of its own: it has one epoll descriptor for all
 * its sockets, and is run when that is readable. */
#include "server/observe/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "server/server.h"

#define MOST_CONNECTIONS 32
#define SILENT_S 10 /* a connection that is idle for this long is closed */

struct metrics {
    struct server *server;
    struct MHD_Daemon *daemon;
    uv_poll_t poll; /* its epoll descriptor */
    int error;      /* errno of the first failure in it */
    u32 count;      /* connections, most recent request last: */
    struct MHD_Connection *open[MOST_CONNECTIONS];
};

/* -- connections ----------------------------------------------------------------------------- */

static void leaves(struct metrics *m, const struct MHD_Connection *c)
{
    u32 i = 0;
    while (i < m->count && m->open[i] != c) i++;
    if (i == m->count) return;
    m->count--;
    memmove(m->open + i, m->open + i + 1, (m->count - i) * sizeof *m->open);
}

static void comes(struct metrics *m, struct MHD_Connection *c)
{
    leaves(m, c);
    CHECK(m->count < MOST_CONNECTIONS);
    m->open[m->count++] = c;
}

/* The last place is taken: closes the connection that has been idle longest, so that the next one need not
 * wait for that. */
static void metrics_make_room(struct metrics *m)
{
    if (m->count < MOST_CONNECTIONS) return;
    shutdown(MHD_get_connection_info(m->open[0], MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd, SHUT_RDWR);
}

static void on_connection(void *arg, struct MHD_Connection *c, void **state UNUSED,
                          enum MHD_ConnectionNotificationCode what)
{
    struct metrics *m = arg;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        leaves(m, c);
    } else {
        comes(m, c);
        metrics_make_room(m);
    }
}

/* -- requests ------------------------------------------------------------------------------------------- */

static enum MHD_Result metrics_respond(struct MHD_Connection *c, unsigned status, const char *type,
                                       bytes text)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(text.n, (void *)text.p, MHD_RESPMEM_MUST_COPY);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    enum MHD_Result queued = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return queued;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url, const char *method,
                                  const char *version UNUSED, const char *upload UNUSED, size_t *upload_size,
                                  void **state UNUSED)
{
    struct metrics *m = arg;
    comes(m, c);
    *upload_size = 0; /* a request body is ignored */
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return metrics_respond(c, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain", BYTES_LIT("GET it.\n"));
    if (strcmp(url, "/metrics") != 0)
        return metrics_respond(c, MHD_HTTP_NOT_FOUND, "text/plain",
                               BYTES_LIT("The metrics are at /metrics.\n"));
    struct buf text = {0};
    metrics_text(m->server, &text);
    enum MHD_Result queued =
        metrics_respond(c, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", buf_bytes(&text));
    buf_release(&text);
    return queued;
}

/* When a place is free again, the library needs another run to accept a connection. */
static void run(struct metrics *m)
{
    bool was_full;
    do {
        was_full = m->count == MOST_CONNECTIONS;
        MHD_run(m->daemon);
    } while (was_full && m->count < MOST_CONNECTIONS);
}

static void on_readable(uv_poll_t *p, int status UNUSED, int events UNUSED) { run(p->data); }

/* -- starting and stopping ------------------------------------------------------------------------------ */

/* The library calls this where something fails. When it returns, errno may be that of its cleanup. */
static void metrics_note_error(void *arg, const char *format UNUSED, va_list values UNUSED)
{
    struct metrics *m = arg;
    if (!m->error) m->error = errno;
}

/* *why: the error, if NULL is returned. */
static struct MHD_Daemon *metrics_listen(struct metrics *m, const char *address, int port, const char **why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found;
    char service[8];
    snprintf(service, sizeof service, "%d", port);
    int unknown = getaddrinfo(address, service, &hints, &found);
    if (unknown) {
        *why = gai_strerror(unknown);
        return NULL;
    }
    unsigned flags = MHD_USE_EPOLL | MHD_USE_ERROR_LOG | (found->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0);
    struct MHD_Daemon *d = MHD_start_daemon(
        flags, (uint16_t)port, NULL, NULL, on_request, m, MHD_OPTION_EXTERNAL_LOGGER,
        metrics_note_error, m, MHD_OPTION_SOCK_ADDR, found->ai_addr,
        MHD_OPTION_CONNECTION_LIMIT, MOST_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, SILENT_S,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, m, MHD_OPTION_END);
    *why = m->error ? strerror(m->error) : "the HTTP library does not say why";
    freeaddrinfo(found);
    return d;
}

struct metrics *metrics_start(struct server *s, const char *address, int port)
{
    struct metrics *m = mem_zalloc(sizeof *m);
    m->server = s;
    const char *why;
    m->daemon = metrics_listen(m, address, port, &why);
    if (!m->daemon) {
        log_line(&s->log, LOG_WARNING, "Failed listening on port %d (metrics), address %s: %s", port, address,
                 why);
        mem_free(m);
        return NULL;
    }
    uv_poll_init(&s->loop, &m->poll, MHD_get_daemon_info(m->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd);
    m->poll.data = m;
    uv_poll_start(&m->poll, UV_READABLE, on_readable);
    log_line(&s->log, LOG_NOTICE, "Metrics for Prometheus at http://%s:%d/metrics", address, port);
    return m;
}

static void metrics_on_closed(uv_handle_t *h) { mem_free(h->data); }

void metrics_stop(struct metrics *m)
{
    if (!m) return;
    uv_close((uv_handle_t *)&m->poll, metrics_on_closed);
    MHD_stop_daemon(m->daemon);
}

void metrics_cron(struct metrics *m)
{
    if (m) run(m);
}
