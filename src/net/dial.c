#include "net/dial.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"

/* One address that is being tried. libuv needs the handle until its close callback has run, so the next
 * address gets a handle of its own. */
struct dial_try {
    uv_poll_t poll;
    struct dial *dial; /* NULL: this attempt was given up */
    int fd;
};

struct dial {
    uv_loop_t *loop;
    uv_getaddrinfo_t resolve;
    struct addrinfo *addresses, *next;
    struct dial_try *attempt; /* NULL: none in progress */
    dial_fn done;             /* NULL: cancelled */
    void *arg;
    bool resolving;
    const char *why; /* the error of the last address */
};

static void dial_free(struct dial *d)
{
    if (d->addresses) uv_freeaddrinfo(d->addresses);
    mem_free(d);
}

static void dial_end(struct dial *d, int fd)
{
    dial_fn done = d->done;
    void *arg = d->arg;
    const char *why = d->why;
    dial_free(d);
    done(arg, fd, why);
}

static void dial_try_closed(uv_handle_t *h) { mem_free(h->data); }

/* Ends an attempt; its socket stays open. */
static int dial_try_end(struct dial_try *t)
{
    int fd = t->fd;
    t->dial->attempt = NULL;
    t->dial = NULL;
    uv_close((uv_handle_t *)&t->poll, dial_try_closed);
    return fd;
}

static void dial_next(struct dial *d);

static void dial_on_poll(uv_poll_t *p, int status UNUSED, int events UNUSED)
{
    struct dial_try *t = p->data;
    struct dial *d = t->dial;
    int code = 0;
    socklen_t n = sizeof code;
    if (getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &code, &n)) code = errno;
    int fd = dial_try_end(t);
    if (code == 0) {
        dial_end(d, fd);
        return;
    }
    close(fd);
    d->why = strerror(code);
    dial_next(d);
}

static bool dial_try(struct dial *d, const struct addrinfo *a)
{
    int yes = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes); /* useful, but not required */
    struct dial_try *t = mem_zalloc(sizeof *t);
    if ((connect(fd, a->ai_addr, a->ai_addrlen) && errno != EINPROGRESS) ||
        uv_poll_init(d->loop, &t->poll, fd)) {
        int code = errno;
        close(fd);
        mem_free(t);
        errno = code;
        return false;
    }
    t->poll.data = t;
    t->dial = d;
    t->fd = fd;
    d->attempt = t;
    CHECK(uv_poll_start(&t->poll, UV_WRITABLE, dial_on_poll) == 0); /* uv_poll_init accepted the socket */
    return true;
}

static void dial_next(struct dial *d)
{
    while (d->next) {
        const struct addrinfo *a = d->next;
        d->next = a->ai_next;
        if (dial_try(d, a)) return;
        d->why = strerror(errno);
    }
    dial_end(d, -1);
}

static void dial_on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
    struct dial *d = req->data;
    d->addresses = d->next = list;
    d->resolving = false;
    if (!d->done) {
        dial_free(d);
        return;
    }
    d->why = status ? uv_strerror(status) : "the name has no address";
    dial_next(d);
}

struct dial *dial_begin(uv_loop_t *loop, const char *host, int port, dial_fn done, void *arg)
{
    char service[16];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct dial *d = mem_zalloc(sizeof *d);
    snprintf(service, sizeof service, "%d", port);
    *d = (struct dial){.loop = loop, .done = done, .arg = arg, .resolving = true};
    d->resolve.data = d;
    /* It fails only for a name that is too long, or without memory; both are excluded before. */
    CHECK(uv_getaddrinfo(loop, &d->resolve, dial_on_resolved, host, service, &hints) == 0);
    return d;
}

void dial_cancel(struct dial *d)
{
    d->done = NULL;
    if (d->resolving) { /* the worker may be resolving: dial_on_resolved frees */
        uv_cancel((uv_req_t *)&d->resolve);
        return;
    }
    close(dial_try_end(d->attempt));
    dial_free(d);
}
