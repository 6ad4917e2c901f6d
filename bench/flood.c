/* flood: two clients that write as fast as they are answered, and a third that watches.
 *
 *   flood PORT VALUE_BYTES TOTAL_BYTES CALM_S
 *
 * Each writer sends `SET w:n <value> EX 600` with new keys and values that don't compress, and keeps up to WINDOW
 * bytes of requests unanswered (at least one request). The watcher sends GET of a random key that is written, and
 * then PING, every millisecond: first alone for CALM_S seconds (only PING, the noise of the machine), then beside the
 * writers until they have TOTAL_BYTES of values written.
 *
 * A watcher that waits for an answer asks less: an answer that takes 5 ms therefore counts as five, of 5, 4, 3, 2 and
 * 1 ms, as if another client had asked in each millisecond. An answer has come when it is at the socket, of which the
 * kernel notes the time (SO_TIMESTAMPNS): how long a client then waits for a core of its own does not count. Nor does
 * it when a writer that had its answer, but no core, sends late.
 *
 * stdout: one line `name value` each for
 *   calm_p999 calm_max          ms, of the watcher alone
 *   p999 max                    ms, of the watcher beside the writers
 *   stop                        ms, the longest time a writer got no answer, from its last answer or its last send on
 *   seconds errors              errors: replies that begin with '-'; the first goes to stderr */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { WRITERS = 2, WINDOW = 64 << 10, NOISE = 4 << 20, REQUEST_MORE = 128, SAMPLES_MAX = 8 << 20 };

struct options { int port; size_t value_bytes; uint64_t requests; int calm_s; };

struct writer {
    const struct options *o;
    const char *noise;              /* values are pieces of it */
    char name;
    int fd;
    char *out;                      /* requests that are not sent yet: out[sent..have) */
    size_t have, sent, cap;
    uint64_t made, answered_here;
    unsigned seed;
    bool line_begins;               /* the next byte that comes begins a reply */
    int64_t since_ns, stop_ns;      /* it waits for the server since then; the longest time it did */
    atomic_ullong answered;         /* the watcher may GET keys below it */
    atomic_ullong errors;
};

struct watcher {
    const struct options *o;
    struct writer *writers;
    int fd;
    unsigned seed;
    float *ms;
    size_t count;
    char *in;
    size_t in_cap;
};

static void die(const char *what)
{
    fprintf(stderr, "flood: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static int64_t clock_ns(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int dial(int port)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof addr) < 0) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
    return fd;
}

static void *take(size_t n)
{
    void *p = malloc(n);
    if (!p) die("malloc");
    memset(p, 0, n); /* no page faults while it measures */
    return p;
}

/* As recv; *came: when, by the wall clock, the last of it arrived. */
static ssize_t receive(int fd, void *p, size_t len, int flags, int64_t *came)
{
    union { char room[256]; struct cmsghdr align; } control;
    struct iovec part = { p, len };
    struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1,
                        .msg_control = control.room, .msg_controllen = sizeof control.room };
    ssize_t n = recvmsg(fd, &m, flags);

    *came = clock_ns(CLOCK_REALTIME);
    for (struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL; c; c = CMSG_NXTHDR(&m, c)) {
        struct timespec ts;
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) continue;
        memcpy(&ts, CMSG_DATA(c), sizeof ts);
        *came = (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
    }
    return n;
}

/* -- writers ---------------------------------------------------------------------------- */

static void make_requests(struct writer *w)
{
    size_t n = w->o->value_bytes;
    uint64_t ahead = n < WINDOW ? WINDOW / n : 1;

    if (w->sent == w->have) w->sent = w->have = 0;
    while (w->made < w->o->requests && w->made - w->answered_here < ahead && w->cap - w->have >= n + REQUEST_MORE) {
        char *p = w->out + w->have;
        p += sprintf(p, "*5\r\n$3\r\nSET\r\n$14\r\n%c:%012llu\r\n$%zu\r\n", w->name, (unsigned long long)w->made, n);
        memcpy(p, w->noise + (unsigned)rand_r(&w->seed) % (NOISE - n), n);
        p += n;
        p += sprintf(p, "\r\n$2\r\nEX\r\n$3\r\n600\r\n");
        w->have = (size_t)(p - w->out);
        w->made++;
    }
}

static void count_replies(struct writer *w, const char *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (w->line_begins && in[i] == '-' && !w->errors++) fprintf(stderr, "flood: %.*s\n", (int)(n - i), in + i);
        w->line_begins = in[i] == '\n';
        w->answered_here += w->line_begins;
    }
    w->answered = w->answered_here;
}

static void take_replies(struct writer *w)
{
    char in[16 << 10];
    int64_t came;
    ssize_t n = receive(w->fd, in, sizeof in, MSG_DONTWAIT, &came);

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) die("no reply");
    if (n < 0) return;
    if (came - w->since_ns > w->stop_ns) w->stop_ns = came - w->since_ns;
    w->since_ns = came;
    count_replies(w, in, (size_t)n);
}

static void send_requests(struct writer *w)
{
    ssize_t n = send(w->fd, w->out + w->sent, w->have - w->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0 && errno != EAGAIN && errno != EINTR) die("send");
    if (n <= 0) return;
    w->sent += (size_t)n;
    w->since_ns = clock_ns(CLOCK_REALTIME);
}

static void *write_all(void *arg)
{
    struct writer *w = arg;

    while (w->answered_here < w->o->requests) {
        make_requests(w);
        struct pollfd p = { .fd = w->fd, .events = (short)(POLLIN | (w->have > w->sent ? POLLOUT : 0)) };
        if (poll(&p, 1, -1) < 0 && errno != EINTR) die("poll");
        if (p.revents & ~POLLOUT) take_replies(w); /* first: they came before what is sent now */
        if (p.revents & POLLOUT) send_requests(w);
    }
    return NULL;
}

static void init_writer(struct writer *w, const struct options *o, const char *noise, char name)
{
    *w = (struct writer){ .o = o, .noise = noise, .name = name, .fd = dial(o->port), .seed = (unsigned)name,
                          .line_begins = true, .cap = 2 * WINDOW + 2 * (o->value_bytes + REQUEST_MORE) };
    w->out = take(w->cap);
}

/* -- the watcher ---------------------------------------------------------------------------- */

static void ask(struct watcher *w, const char *request, size_t len)
{
    int64_t sent = clock_ns(CLOCK_REALTIME), came = sent;
    size_t have = 0, need = 0;

    if (send(w->fd, request, len, MSG_NOSIGNAL) != (ssize_t)len) die("send");
    while (!need || have < need) {
        ssize_t n = receive(w->fd, w->in + have, w->in_cap - 1 - have, 0, &came);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) die("no reply");
        have += (size_t)n;
        w->in[have] = 0;
        char *end = need ? NULL : strstr(w->in, "\r\n");
        if (!end) continue;
        need = (size_t)(end + 2 - w->in);
        if (w->in[0] == '$') need += (size_t)atoi(w->in + 1) + 2;
        errno = 0;
        if (w->in[0] == '-' || !strncmp(w->in, "$-1", 3)) die(w->in);
    }
    for (double ms = (double)(came - sent) / 1e6; w->count < SAMPLES_MAX; ms -= 1) {
        w->ms[w->count++] = (float)ms;
        if (ms <= 1) break;
    }
}

static void get_any(struct watcher *w)
{
    char request[64];
    struct writer *of = &w->writers[rand_r(&w->seed) % WRITERS];
    uint64_t there = of->answered, random = (uint64_t)rand_r(&w->seed) << 31 | (uint64_t)rand_r(&w->seed);

    if (!there) return;
    int n = snprintf(request, sizeof request, "*2\r\n$3\r\nGET\r\n$14\r\n%c:%012llu\r\n", of->name,
                     (unsigned long long)(random % there));
    ask(w, request, (size_t)n);
}

static bool writers_are_done(const struct watcher *w)
{
    for (int i = 0; i < WRITERS; i++)
        if (w->writers[i].answered < w->o->requests) return false;
    return true;
}

static void watch_once(struct watcher *w)
{
    struct timespec pause = { .tv_nsec = 1000000 };

    get_any(w);
    ask(w, "*1\r\n$4\r\nPING\r\n", 14);
    nanosleep(&pause, NULL);
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void report(struct watcher *w, const char *prefix)
{
    if (!w->count) return;
    qsort(w->ms, w->count, sizeof *w->ms, by_size);
    printf("%sp999 %.3f\n%smax %.3f\n", prefix, w->ms[w->count - 1 - w->count / 1000], prefix, w->ms[w->count - 1]);
    w->count = 0;
}

/* -- together -------------------------------------------------------------------------------- */

/* The watcher runs in a real-time class where it may: it sleeps between its requests and starves no other. Not while
 * it starts the writers, which would inherit that. */
static void prefer_this_thread(bool yes)
{
    struct sched_param p = { .sched_priority = yes ? 1 : 0 };
    (void)pthread_setschedparam(pthread_self(), yes ? SCHED_FIFO : SCHED_OTHER, &p);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: flood PORT VALUE_BYTES TOTAL_BYTES CALM_S\n");
        return 2;
    }
    struct options o = { .port = atoi(argv[1]), .value_bytes = strtoull(argv[2], NULL, 10), .calm_s = atoi(argv[4]) };
    if (!o.value_bytes || o.value_bytes > NOISE / 2) die("VALUE_BYTES: out of range");
    o.requests = strtoull(argv[3], NULL, 10) / o.value_bytes / WRITERS;

    char *noise = take(NOISE);
    for (size_t at = 0; at < NOISE; at += 256)
        if (getrandom(noise + at, 256, 0) != 256) die("getrandom");
    struct writer writers[WRITERS];
    pthread_t threads[WRITERS];
    for (int i = 0; i < WRITERS; i++) init_writer(&writers[i], &o, noise, (char)('a' + i));
    struct watcher w = { .o = &o, .writers = writers, .fd = dial(o.port), .seed = 1, .in_cap = o.value_bytes + 4096 };
    w.in = take(w.in_cap);
    w.ms = take(SAMPLES_MAX * sizeof *w.ms);

    int64_t start = clock_ns(CLOCK_MONOTONIC);
    prefer_this_thread(true);
    while (clock_ns(CLOCK_MONOTONIC) - start < (int64_t)o.calm_s * 1000000000) watch_once(&w);
    report(&w, "calm_");
    prefer_this_thread(false);

    start = clock_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < WRITERS; i++)
        if (pthread_create(&threads[i], NULL, write_all, &writers[i])) die("pthread_create");
    prefer_this_thread(true);
    while (!writers_are_done(&w)) watch_once(&w);
    double seconds = (double)(clock_ns(CLOCK_MONOTONIC) - start) / 1e9;
    report(&w, "");

    int64_t stop_ns = 0;
    unsigned long long errors = 0;
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
        if (writers[i].stop_ns > stop_ns) stop_ns = writers[i].stop_ns;
        errors += writers[i].errors;
    }
    printf("stop %.3f\nseconds %.3f\nerrors %llu\n", (double)stop_ns / 1e6, seconds, errors);
    return 0;
}
