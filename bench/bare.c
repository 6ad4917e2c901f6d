/* bare: the least a server on one thread can do for its connections: epoll, recv, send.
 *
 *   bare PORT REPLY_BYTES
 *
 * It answers each request with the same value of REPLY_BYTES (0: "+OK"), and knows where requests begin by their '*',
 * which keys and values must not contain. What it needs per request is the kernel's part: the floor for everybody
 * else. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 1024, INPUT = 16 << 10, REPLIES = 256 };

static void die(const char *what)
{
    fprintf(stderr, "bare: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int listen_at(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 511)) die("can't listen");
    return fd;
}

/* REPLIES replies in a row, so that those of a pipeline go out in one piece. */
static char *make_replies(size_t value_bytes, size_t *one)
{
    char *all = malloc((value_bytes + 32) * REPLIES), *p = all;
    for (int i = 0; i < REPLIES; i++) {
        if (value_bytes) {
            p += sprintf(p, "$%zu\r\n", value_bytes);
            memset(p, 'x', value_bytes);
            p += value_bytes;
            p += sprintf(p, "\r\n");
        } else {
            p += sprintf(p, "+OK\r\n");
        }
        if (i == 0) *one = (size_t)(p - all);
    }
    return all;
}

static void accept_one(int listener, int epoll)
{
    int fd = accept(listener, NULL, NULL), on = 1;
    if (fd < 0) return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e)) die("epoll_ctl");
}

static void serve(int fd, const char *replies, size_t one)
{
    static char in[INPUT];
    ssize_t got = recv(fd, in, sizeof in, 0);
    if (got <= 0) {
        close(fd);
        return;
    }
    size_t requests = 0;
    for (const char *p = in, *end = in + got; p < end && (p = memchr(p, '*', (size_t)(end - p))); p++) requests++;
    for (; requests; requests -= requests < REPLIES ? requests : REPLIES) {
        size_t n = requests < REPLIES ? requests : REPLIES;
        if (send(fd, replies, n * one, MSG_NOSIGNAL) < 0) {
            close(fd);
            return;
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: bare PORT REPLY_BYTES\n");
        return 2;
    }
    size_t one = 0;
    char *replies = make_replies(strtoull(argv[2], NULL, 10), &one);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int listener = listen_at(atoi(argv[1])), epoll = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener}, ready[EVENTS];
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e)) die("epoll");
    for (;;) {
        int n = epoll_wait(epoll, ready, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            if (ready[i].data.fd == listener) accept_one(listener, epoll);
            else serve(ready[i].data.fd, replies, one);
        }
    }
}
