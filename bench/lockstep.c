/* lockstep: many connections, one request in flight on each.
 *
 *   lockstep PORT CONNECTIONS ROUNDS get|set KEYS VALUE_BYTES
 *
 * A round sends one request on every connection, and then reads all replies. So the server always finds as many
 * requests as there are connections, or nothing: its CPU time per request varies by a few per cent between runs,
 * where that of a load whose clients go at their own pace varies by a third. Keys are key:000000000000 and so on, at
 * random, as those of redis-benchmark.
 *
 * stdout: `requests N` and `seconds S`, without the connecting. A reply that begins with '-' ends it. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { KEY_BYTES = 16, REPLY_MAX = 64 << 10 };

static void die(const char *what)
{
    fprintf(stderr, "lockstep: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static int connect_to(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) die("can't connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void allow_files(rlim_t n)
{
    struct rlimit l;
    getrlimit(RLIMIT_NOFILE, &l);
    if (l.rlim_cur >= n) return;
    l.rlim_cur = n;
    if (l.rlim_max < n) l.rlim_max = n;
    if (setrlimit(RLIMIT_NOFILE, &l)) die("too few files may be open");
}

/* A request, and where its key's twelve digits are. */
struct request {
    char *text;
    size_t n, digits_at;
};

static struct request make_request(bool set, size_t value_bytes)
{
    struct request r = {.text = malloc(value_bytes + 128)};
    char *p = r.text;
    p += sprintf(p, "*%d\r\n$3\r\n%s\r\n$%d\r\nkey:", set ? 3 : 2, set ? "SET" : "GET", KEY_BYTES);
    r.digits_at = (size_t)(p - r.text);
    p += sprintf(p, "%012d\r\n", 0);
    if (set) {
        p += sprintf(p, "$%zu\r\n", value_bytes);
        memset(p, 'x', value_bytes);
        p += value_bytes;
        p += sprintf(p, "\r\n");
    }
    r.n = (size_t)(p - r.text);
    return r;
}

static void send_request(int fd, struct request *r, uint64_t key)
{
    for (size_t i = KEY_BYTES - 4; i-- > 0; key /= 10) r->text[r->digits_at + i] = (char)('0' + key % 10);
    if (send(fd, r->text, r->n, MSG_NOSIGNAL) != (ssize_t)r->n) die("can't send");
}

/* A reply is one line, or, if that announces a value, two. Values have no line breaks. */
static void read_reply(int fd)
{
    static char in[REPLY_MAX];
    size_t n = 0;
    for (int lines = 0, want = 1; lines < want;) {
        ssize_t got = recv(fd, in + n, sizeof in - n, 0);
        if (got <= 0) die("no reply");
        if (in[0] == '-') die("an error reply");
        for (const char *p = in + n, *end = p + got; (p = memchr(p, '\n', (size_t)(end - p))); p++) lines++;
        n += (size_t)got;
        want = in[0] == '$' && n > 1 && in[1] != '-' ? 2 : 1;
    }
}

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static uint64_t random_below(uint64_t n)
{
    static uint64_t x = 88172645463325252u; /* xorshift */
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return x % n;
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: lockstep PORT CONNECTIONS ROUNDS get|set KEYS VALUE_BYTES\n");
        return 2;
    }
    int port = atoi(argv[1]), connections = atoi(argv[2]);
    uint64_t rounds = strtoull(argv[3], NULL, 10), keys = strtoull(argv[5], NULL, 10);
    size_t value_bytes = strtoull(argv[6], NULL, 10);
    if (connections < 1 || keys < 1 || value_bytes > REPLY_MAX - 64) die("an argument is out of range");
    allow_files((rlim_t)connections + 16);
    struct request r = make_request(strcmp(argv[4], "set") == 0, value_bytes);
    int *fd = malloc((size_t)connections * sizeof *fd);
    for (int i = 0; i < connections; i++) fd[i] = connect_to(port);
    double begun = now_s();
    for (uint64_t round = 0; round < rounds; round++) {
        for (int i = 0; i < connections; i++) send_request(fd[i], &r, random_below(keys));
        for (int i = 0; i < connections; i++) read_reply(fd[i]);
    }
    printf("requests %llu\nseconds %.6f\n", (unsigned long long)rounds * (unsigned long long)connections,
           now_s() - begun);
    return 0;
}
