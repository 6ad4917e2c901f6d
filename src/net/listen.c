/* Listening sockets, and accepting connections from them. */
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "net/net_parts.h"

static bool set_option(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof value) == 0; /* useful, but not required */
}

/* -- accepting ----------------------------------------------------------------------------- */

static void describe_unix(struct conn *c)
{
    struct sockaddr_un a;
    socklen_t n = sizeof a;
    if (getsockname(c->fd, (struct sockaddr *)&a, &n) || n <= offsetof(struct sockaddr_un, sun_path))
        a.sun_path[0] = '\0';
    snprintf(c->peer, sizeof c->peer, "%.60s:0", a.sun_path);
    snprintf(c->local, sizeof c->local, "%.60s:0", a.sun_path);
}

static void print_address(const struct sockaddr_storage *a, char *out, size_t size, bool *loopback)
{
    char ip[48] = "?";
    if (a->ss_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, a, sizeof v6);
        uv_ip6_name(&v6, ip, sizeof ip);
        *loopback = IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
        snprintf(out, size, "[%s]:%d", ip, ntohs(v6.sin6_port));
    } else {
        struct sockaddr_in v4;
        memcpy(&v4, a, sizeof v4);
        uv_ip4_name(&v4, ip, sizeof ip);
        *loopback = (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
        snprintf(out, size, "%s:%d", ip, ntohs(v4.sin_port));
    }
}

bool net_addresses(int fd, char peer[NET_ADDRESS], char local[NET_ADDRESS])
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    bool loopback = false, ignored;
    if (getpeername(fd, (struct sockaddr *)&a, &n) == 0) print_address(&a, peer, NET_ADDRESS, &loopback);
    n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n) == 0) print_address(&a, local, NET_ADDRESS, &ignored);
    return loopback;
}

static void describe_tcp(struct conn *c)
{
    c->is_loopback = net_addresses(c->fd, c->peer, c->local);
    set_option(c->fd, IPPROTO_TCP, TCP_NODELAY, 1);
    /* Nothing is congested within one host: there the pacing and timers of another congestion control (bbr,
     * say) only cost time. On failure the host's default stays. */
    if (c->is_loopback) setsockopt(c->fd, IPPROTO_TCP, TCP_CONGESTION, "reno", strlen("reno"));
    int keepalive = (int)c->net->config.keepalive_s;
    if (!keepalive) return;
    set_option(c->fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(c->fd, IPPROTO_TCP, TCP_KEEPIDLE, keepalive);
    set_option(c->fd, IPPROTO_TCP, TCP_KEEPINTVL, MAX(keepalive / 3, 1));
    set_option(c->fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

static void listen_refuse(struct conn *c, const char *why)
{
    /* If it does not fit, closing has to do; as it does before a TLS handshake. */
    if (!c->tls && send(c->fd, why, strlen(why), MSG_NOSIGNAL) < 0) errno = 0;
    c->net->own.stats.rejected++;
    conn_close(c);
}

static void welcome(struct net *n, int fd, const struct listener *l)
{
    struct conn *c = conn_new(n, fd, l);
    if (!c) return;
    if (l->is_unix) describe_unix(c);
    else describe_tcp(c);
    const char *why = net_clients(n) > n->config.max_clients ? "-ERR max number of clients reached\r\n"
                                                             : n->on_accept(n, c);
    if (why) {
        listen_refuse(c, why);
        return;
    }
    n->own.stats.connections++;
    net_watch(c, UV_READABLE);
}

static bool is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

/* Without free file descriptors new connections stay in the backlog, and the socket stays readable: polling
 * it would make the loop spin. */
void net_on_connection(uv_poll_t *p, int status UNUSED, int events UNUSED)
{
    struct listener *l = (struct listener *)p;
    struct net *n = p->data;
    for (u32 i = l->tls ? n->config.tls_accepts : n->config.accepts; i > 0; i--) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (!is_shortage(errno)) return;
            n->no_files = true;
            uv_poll_stop(p);
            return;
        }
        welcome(n, fd, l);
    }
}

void net_retry_accept(struct net *n)
{
    if (!n->no_files) return;
    n->no_files = false;
    for (struct listener *l = n->listeners; l; l = l->next)
        uv_poll_start(&l->poll, UV_READABLE, net_on_connection);
}

/* -- listening ----------------------------------------------------------------------------- */

/* Takes the socket over, even if it fails. */
static int start_listening(struct net *n, int fd, bool is_unix, bool tls)
{
    if (listen(fd, (int)n->config.backlog)) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    struct listener *l = mem_zalloc(sizeof *l);
    l->fd = fd;
    l->is_unix = is_unix;
    l->tls = tls;
    uv_poll_init(n->loop, &l->poll, fd);
    l->poll.data = n;
    l->next = n->listeners;
    n->listeners = l;
    return uv_poll_start(&l->poll, UV_READABLE, net_on_connection);
}

static int bind_tcp(struct net *n, const struct addrinfo *a, bool tls)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (a->ai_family == AF_INET6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    if (n->config.mark && !set_option(fd, SOL_SOCKET, SO_MARK, (int)n->config.mark)) n->mark_failed = true;
    if (bind(fd, a->ai_addr, a->ai_addrlen)) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    return start_listening(n, fd, false, tls);
}

int net_listen_tcp(struct net *n, const char *address, int port, bool tls)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found;
    char service[8];
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(address, service, &hints, &found)) return UV_EADDRNOTAVAIL;
    int rc = bind_tcp(n, found, tls);
    freeaddrinfo(found);
    return rc;
}

int net_listen_unix(struct net *n, const char *path, int mode)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (length >= sizeof a.sun_path) return UV_ENAMETOOLONG;
    memcpy(a.sun_path, path, length + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    unlink(path); /* a socket left over from a crash */
    if (bind(fd, (struct sockaddr *)&a, sizeof a)) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    if (mode) chmod(path, (mode_t)mode);
    return start_listening(n, fd, true, false);
}

static void on_listener_closed(uv_handle_t *h) { mem_free(h); }

void net_stop_listening(struct net *n, bool only_tcp)
{
    for (struct listener **at = &n->listeners; *at;) {
        struct listener *l = *at;
        if (only_tcp && l->is_unix) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        uv_close((uv_handle_t *)&l->poll, on_listener_closed);
        close(l->fd);
    }
}
