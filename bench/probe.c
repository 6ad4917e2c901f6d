/* probe: one client that measures the latency of a server, request by request.
 *
 * It sends SET and GET in turn, one at a time and back to back, over keys of
 * its own, and records for every request when it was sent and how long the
 * answer took. Every POLL_MS it asks DBSIZE on the same connection. At
 * TRIGGER_MS it can send one command more and time that too.
 *
 *   probe PORT OUT T0_MS FROM_MS TO_MS POLL_MS [TRIGGER_MS CMD ARG...]
 *
 * T0_MS is a wall-clock time in Unix milliseconds; the other times are relative
 * to it. SIGTERM ends the measuring before TO_MS. When a request is sent is told
 * by the monotonic clock, on which T0 is placed once; how long it takes, by the
 * wall clock, which is the kernel's for its notes. OUT receives native int64 records
 * { kind, sent_ns (relative to T0), latency_ns, value }.
 *
 * An answer has come when it is at the probe's socket: the kernel notes the time
 * (SO_TIMESTAMPNS) where the server's send takes it there. Until the probe has
 * been woken and reads it, its own core may stand still, which is nothing the
 * server does.
 *
 * Memory for the samples is taken and touched beforehand, so that the probe
 * takes no page fault while it measures. */
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
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { KEYS = 1000, VALUE_LEN = 100, MAX_RATE = 200000, REPLY_TIMEOUT_S = 60 };
enum kind { PING = 0, POLL = 1, TRIGGER = 2 };

struct sample { int64_t kind, sent_ns, latency_ns, value; };

static struct sample *samples;
static size_t n_samples, max_samples;
static int64_t t0_ns;
static size_t unstamped;       /* answers of which the kernel did not note the time */
static volatile sig_atomic_t stopped;

static void on_term(int sig) { stopped = sig; }

static void die(const char *what)
{
    fprintf(stderr, "probe: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static int64_t in_ns(struct timespec ts) { return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec; }

static int64_t clock_ns(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return in_ns(ts);
}

static int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC) - t0_ns; }

static int dial(int port)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct timeval limit = { .tv_sec = REPLY_TIMEOUT_S };
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof addr) < 0) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one) < 0) die("SO_TIMESTAMPNS");
    return fd;
}

static void send_all(int fd, const char *p, size_t len)
{
    while (len) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) die("send");
        p += n;
        len -= (size_t)n;
    }
}

/* As recv; *came: when, by the wall clock, the last of it arrived. */
static ssize_t receive(int fd, void *p, size_t len, int64_t *came)
{
    union { char room[256]; struct cmsghdr align; } control;
    struct iovec part = { p, len };
    struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1,
                        .msg_control = control.room, .msg_controllen = sizeof control.room };
    ssize_t n = recvmsg(fd, &m, 0);

    if (n <= 0) return n;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        struct timespec ts;
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) continue;
        memcpy(&ts, CMSG_DATA(c), sizeof ts);
        *came = in_ns(ts);
        return n;
    }
    *came = clock_ns(CLOCK_REALTIME);
    unstamped++;
    return n;
}

/* Reads one reply: a line, or a bulk string. Returns the integer of `:n`, the
 * length of a bulk string, 0 for `+…`; an error reply ends the probe. */
static int64_t read_reply(int fd, int64_t *came)
{
    static char buf[1024];
    size_t have = 0, need = 0;
    char *eol = NULL;

    while (!eol || have < need) {
        ssize_t n = receive(fd, buf + have, sizeof buf - 1 - have, came);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = 0;
        if (n <= 0) die("no reply");
        have += (size_t)n;
        buf[have] = 0;
        if (eol || !(eol = strstr(buf, "\r\n"))) continue;
        need = (size_t)(eol + 2 - buf);
        if (buf[0] == '$' && atoi(buf + 1) >= 0) need += (size_t)atoi(buf + 1) + 2;
        if (need >= sizeof buf) { errno = 0; die("reply too long"); }
    }
    if (buf[0] == '-') { errno = 0; *eol = 0; die(buf); }
    return buf[0] == '+' ? 0 : atoll(buf + 1);
}

static int64_t timed(int fd, enum kind kind, const char *req, size_t len)
{
    int64_t at = now_ns(), sent = clock_ns(CLOCK_REALTIME), came;
    send_all(fd, req, len);
    int64_t value = read_reply(fd, &came);

    if (n_samples == max_samples) { errno = 0; die("more samples than expected"); }
    samples[n_samples++] = (struct sample){ kind, at, came - sent, value };
    return value;
}

static void ping(int fd, unsigned long turn)
{
    static char value[VALUE_LEN + 1];
    char req[256];
    unsigned key = (unsigned)(turn / 2 % KEYS);
    int len;

    if (!value[0]) memset(value, 'p', VALUE_LEN);
    if (turn % 2 == 0)
        len = snprintf(req, sizeof req, "*3\r\n$3\r\nSET\r\n$12\r\nprobe:%06u\r\n$%d\r\n%s\r\n",
                       key, VALUE_LEN, value);
    else
        len = snprintf(req, sizeof req, "*2\r\n$3\r\nGET\r\n$12\r\nprobe:%06u\r\n", key);
    if (timed(fd, PING, req, (size_t)len) != (turn % 2 ? VALUE_LEN : 0)) {
        errno = 0;
        die("the server lost or changed a probe key");
    }
}

static size_t encode(char *out, size_t cap, char **argv, int argc)
{
    size_t n = (size_t)snprintf(out, cap, "*%d\r\n", argc);
    for (int i = 0; i < argc && n < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, "$%zu\r\n%s\r\n", strlen(argv[i]), argv[i]);
    if (n >= cap) { errno = 0; die("trigger too long"); }
    return n;
}

int main(int argc, char **argv)
{
    static const char dbsize[] = "*1\r\n$6\r\nDBSIZE\r\n";
    char trigger[1024];
    size_t trigger_len = 0;
    int64_t trigger_ns = INT64_MAX;

    if (argc < 7 || argc == 8) {
        fprintf(stderr, "usage: probe PORT OUT T0_MS FROM_MS TO_MS POLL_MS [TRIGGER_MS CMD ARG...]\n");
        return 2;
    }
    int64_t from = atoll(argv[4]) * 1000000, to = atoll(argv[5]) * 1000000;
    int64_t poll_every = atoll(argv[6]) * 1000000;
    if (argc > 8) {
        trigger_ns = atoll(argv[7]) * 1000000;
        trigger_len = encode(trigger, sizeof trigger, argv + 8, argc - 8);
    }
    t0_ns = clock_ns(CLOCK_MONOTONIC) + (atoll(argv[3]) * 1000000 - clock_ns(CLOCK_REALTIME));

    max_samples = (size_t)((to - from) / 1000000000 + 1) * MAX_RATE;
    samples = malloc(max_samples * sizeof *samples);
    if (!samples) die("malloc");
    memset(samples, 0, max_samples * sizeof *samples);
    (void)mlockall(MCL_CURRENT);

    int fd = dial(atoi(argv[1]));
    for (unsigned long turn = 0; turn < 2 * KEYS; turn++) ping(fd, turn); /* warm-up */
    n_samples = unstamped = 0;

    signal(SIGTERM, on_term);
    int64_t early = from - now_ns();
    if (early > 0) usleep((useconds_t)(early / 1000));

    int64_t next_poll = from;
    for (unsigned long turn = 0;; turn++) {
        int64_t now = now_ns();
        if (now >= to || stopped) break;
        if (now >= trigger_ns) {
            timed(fd, TRIGGER, trigger, trigger_len);
            trigger_ns = INT64_MAX;
        } else if (poll_every && now >= next_poll) {
            timed(fd, POLL, dbsize, sizeof dbsize - 1);
            next_poll = now + poll_every;
        } else {
            ping(fd, turn);
        }
    }

    errno = 0;
    if (unstamped) die("the kernel does not note when answers arrive");
    FILE *out = fopen(argv[2], "wb");
    if (!out || fwrite(samples, sizeof *samples, n_samples, out) != n_samples || fclose(out))
        die("write samples");
    return 0;
}
