#include "server/import/target.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/num.h"
#include "resp/command.h"

#define ANSWER_TIMEOUT_S 20
#define PATIENCE_MS 60000 /* without any progress */
#define RETRY_MS 200
#define READ_BYTES (16u << 10)

struct target_node {
    struct target_node *next;
    char host[256];
    int port, fd;           /* -1: not connected */
    struct buf out, in;
    size_t used;            /* of `in` */
    u32 *sent;              /* numbers of the commands of this attempt, in order */
    u32 sent_n, sent_room;
};

static bool target_fail(struct target *t, const char *fmt, ...) PRINTF_LIKE(2, 3);

static bool target_fail(struct target *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(t->error, sizeof t->error, fmt, ap);
    va_end(ap);
    return false;
}

/* -- batches ----------------------------------------------------------------------------------- */

void batch_add(struct target_batch *b, u16 slot, int argc, const bytes *argv, bytes key)
{
    size_t at = b->text.n;
    resp_write_command(&b->text, argc, argv);
    if (b->count == b->room) {
        b->room = b->room ? 2 * b->room : 256;
        b->commands = mem_realloc(b->commands, b->room * sizeof *b->commands);
    }
    const char *p = key.n ? memmem(b->text.p + at, b->text.n - at, key.p, key.n) : b->text.p;
    b->commands[b->count++] = (struct target_command){
        .slot = slot, .at = at, .n = b->text.n - at, .key_at = (size_t)(p - b->text.p), .key_n = key.n};
    b->left++;
}

void batch_cancel(struct target_batch *b)
{
    b->commands[b->count - 1].done = true;
    b->left--;
}

void batch_clear(struct target_batch *b)
{
    buf_clear(&b->text);
    b->count = b->left = 0;
}

void batch_release(struct target_batch *b)
{
    buf_release(&b->text);
    mem_free(b->commands);
}

/* -- a connection ------------------------------------------------------------------------------ */

static void node_close(struct target_node *n)
{
    if (n->fd >= 0) close(n->fd);
    n->fd = -1;
    buf_clear(&n->in);
    n->used = 0;
}

static bool node_write(struct target *t, struct target_node *n, bytes what)
{
    while (what.n) {
        ssize_t done = send(n->fd, what.p, what.n, MSG_NOSIGNAL);
        if (done <= 0) {
            target_fail(t, "%s:%d: %s", n->host, n->port, strerror(errno));
            node_close(n);
            return false;
        }
        what = bytes_of(what.p + done, what.n - (size_t)done);
    }
    return true;
}

static bool node_read(struct target *t, struct target_node *n)
{
    char *to = buf_reserve(&n->in, READ_BYTES);
    ssize_t got = recv(n->fd, to, READ_BYTES, 0);
    if (got > 0) {
        n->in.n += (size_t)got;
        return true;
    }
    target_fail(t, "%s:%d: %s", n->host, n->port, got ? strerror(errno) : "the connection was closed");
    node_close(n);
    return false;
}

/* A line without its end, valid until the next read. */
static bool node_line(struct target *t, struct target_node *n, bytes *line)
{
    const char *end;
    if (n->used == n->in.n) {
        buf_clear(&n->in);
        n->used = 0;
    }
    while (!(end = n->in.n > n->used ? memmem(n->in.p + n->used, n->in.n - n->used, "\r\n", 2) : NULL))
        if (!node_read(t, n)) return false;
    *line = bytes_of(n->in.p + n->used, (size_t)(end - n->in.p) - n->used);
    n->used += line->n + 2;
    return true;
}

/* The answer to a command: the line of a status, an error or a number, or the bytes of a string. */
static bool node_answer(struct target *t, struct target_node *n, bytes *answer)
{
    i64 size;
    if (!node_line(t, n, answer)) return false;
    if (!answer->n || answer->p[0] != '$') return true;
    if (!num_parse_i64(bytes_of(answer->p + 1, answer->n - 1), &size) || size < 0) return true;
    while (n->in.n - n->used < (size_t)size + 2)
        if (!node_read(t, n)) return false;
    *answer = bytes_of(n->in.p + n->used, (size_t)size);
    n->used += (size_t)size + 2;
    return true;
}

static bool node_ask(struct target *t, struct target_node *n, int argc, const bytes *argv, bytes *answer)
{
    struct buf b = {0};
    resp_write_command(&b, argc, argv);
    bool ok = node_write(t, n, buf_bytes(&b)) && node_answer(t, n, answer);
    buf_release(&b);
    return ok;
}

static bool node_log_in(struct target *t, struct target_node *n)
{
    bytes answer, argv[3] = {BYTES_LIT("AUTH")};
    int argc = 1;
    if (!t->password) return true;
    if (t->user) argv[argc++] = bytes_str(t->user);
    argv[argc++] = bytes_str(t->password);
    if (!node_ask(t, n, argc, argv, &answer)) return false;
    if (answer.n && answer.p[0] == '+') return true;
    target_fail(t, "%s:%d: %.*s", n->host, n->port, (int)MIN(answer.n, 200u), answer.p);
    node_close(n);
    return false;
}

static int dial(const struct addrinfo *a)
{
    const struct timeval patience = {.tv_sec = ANSWER_TIMEOUT_S};
    int on = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience); /* connect() has it, too */
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) return fd;
    close(fd);
    return -1;
}

static bool node_connect(struct target *t, struct target_node *n)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    char port[16];
    if (n->fd >= 0) return true;
    snprintf(port, sizeof port, "%d", n->port);
    int rc = getaddrinfo(n->host, port, &hints, &list);
    if (rc) return target_fail(t, "%s: %s", n->host, gai_strerror(rc));
    for (const struct addrinfo *a = list; a && n->fd < 0; a = a->ai_next) n->fd = dial(a);
    freeaddrinfo(list);
    if (n->fd < 0) return target_fail(t, "%s:%d: %s", n->host, n->port, strerror(errno));
    return node_log_in(t, n);
}

/* -- who leads what ---------------------------------------------------------------------------- */

static struct target_node *node_at(struct target *t, const char *host, int port)
{
    struct target_node *n = t->nodes;
    while (n && (n->port != port || strcmp(n->host, host) != 0)) n = n->next;
    if (n) return n;
    n = mem_zalloc(sizeof *n);
    snprintf(n->host, sizeof n->host, "%s", host);
    n->port = port;
    n->fd = -1;
    n->next = t->nodes;
    t->nodes = n;
    return n;
}

/* "host:port", in which the host may be an IPv6 address; an empty one is that of `asked`. */
static struct target_node *node_of_address(struct target *t, const struct target_node *asked, bytes address)
{
    char host[256];
    const char *colon = memrchr(address.p, ':', address.n);
    if (!colon || (size_t)(colon - address.p) >= sizeof host) return NULL;
    int port = atoi(colon + 1);
    snprintf(host, sizeof host, "%.*s", (int)(colon - address.p), address.p);
    if (port <= 0 || port > UINT16_MAX) return NULL;
    return node_at(t, host[0] ? host : asked->host, port);
}

/* A line of CLUSTER NODES: id host:port@bus flags primary ping pong epoch state slots … */
static void take_node_line(struct target *t, const struct target_node *asked, char *line)
{
    char *save = NULL, *word, *address = NULL;
    struct target_node *n = NULL;
    int at = 0, first, last;
    for (word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save), at++) {
        if (at == 1) address = word;
        if (at < 8 || *word == '[') continue; /* a slot that moves stays with its owner */
        int numbers = sscanf(word, "%d-%d", &first, &last);
        if (numbers == 1) last = first;
        if (!n) n = node_of_address(t, asked, bytes_of(address, strcspn(address, "@")));
        if (numbers < 1 || !n || first < 0 || last >= KEY_SLOTS) return;
        while (first <= last) t->of_slot[first++] = n;
    }
}

/* False: this node could not be asked. A lone server says that it has no cluster: it gets everything. */
static bool learn_slots(struct target *t, struct target_node *from)
{
    bytes answer, argv[] = {BYTES_LIT("CLUSTER"), BYTES_LIT("NODES")};
    if (!node_connect(t, from) || !node_ask(t, from, 2, argv, &answer)) return false;
    if (answer.n && answer.p[0] == '-') {
        bool lone = memmem(answer.p, answer.n, "cluster support disabled", 24);
        if (!lone) return target_fail(t, "%s:%d: %.*s", from->host, from->port, (int)answer.n, answer.p);
        for (u32 i = 0; i < KEY_SLOTS; i++) t->of_slot[i] = from;
        return true;
    }
    struct buf text = {0};
    char *save = NULL;
    buf_append_bytes(&text, answer);
    buf_append_char(&text, '\0');
    for (char *line = strtok_r(text.p, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        take_node_line(t, from, line);
    buf_release(&text);
    return true;
}

u32 target_leaders(const struct target *t, u16 slots[TARGET_LEADERS_MAX])
{
    u32 count = 0;
    for (u32 slot = 0; slot < KEY_SLOTS && count < TARGET_LEADERS_MAX; slot++) {
        u32 i = 0;
        while (i < count && t->of_slot[slots[i]] != t->of_slot[slot]) i++;
        if (i == count && t->of_slot[slot]) slots[count++] = (u16)slot;
    }
    return count;
}

/* Asks one node after the other. */
static void learn_slots_again(struct target *t)
{
    for (struct target_node *n = t->nodes; n; n = n->next)
        if (learn_slots(t, n)) return;
}

bool target_open(struct target *t, const char *address, const char *user, const char *password)
{
    struct target_node none = {0};
    *t = (struct target){.user = user, .password = password};
    t->first = node_of_address(t, &none, bytes_str(address));
    if (!t->first || !t->first->host[0]) return target_fail(t, "%s is not HOST:PORT", address);
    return learn_slots(t, t->first);
}

void target_close(struct target *t)
{
    while (t->nodes) {
        struct target_node *n = t->nodes;
        t->nodes = n->next;
        node_close(n);
        buf_release(&n->out);
        buf_release(&n->in);
        mem_free(n->sent);
        mem_free(n);
    }
}

/* -- sending ----------------------------------------------------------------------------------- */

static void queue_command(struct target_node *n, const struct target_batch *b, u32 number)
{
    if (n->sent_n == n->sent_room) {
        n->sent_room = n->sent_room ? 2 * n->sent_room : 256;
        n->sent = mem_realloc(n->sent, n->sent_room * sizeof *n->sent);
    }
    n->sent[n->sent_n++] = number;
    buf_append(&n->out, b->text.p + b->commands[number].at, b->commands[number].n);
}

static void queue_batch(struct target *t, const struct target_batch *b)
{
    for (u32 i = 0; i < b->count; i++) {
        struct target_node *n = t->of_slot[b->commands[i].slot];
        if (!b->commands[i].done) queue_command(n ? n : t->first, b, i);
    }
}

static bool begins(bytes s, const char *with)
{
    size_t n = strlen(with);
    return s.n >= n && memcmp(s.p, with, n) == 0;
}

/* Answers after which the same command is sent again, perhaps elsewhere. */
static bool target_passes(bytes answer)
{
    static const char *const words[] = {"-MOVED ", "-CLUSTERDOWN", "-TRYAGAIN", "-UNCERTAIN", "-LOADING",
                                        "-READONLY", "-ASK ", "-MASTERDOWN", "-BUSY "};
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (begins(answer, words[i])) return true;
    return false;
}

static void note_moved(struct target *t, const struct target_node *from, bytes answer)
{
    char text[320];
    int slot, at = 0;
    snprintf(text, sizeof text, "%.*s", (int)answer.n, answer.p);
    if (sscanf(text, "-MOVED %d %n", &slot, &at) < 1 || !at || slot < 0 || slot >= KEY_SLOTS) return;
    struct target_node *n = node_of_address(t, from, bytes_str(text + at));
    if (n) t->of_slot[slot] = n;
}

/* False: refused for good. */
static bool target_take_answer(struct target *t, const struct target_node *n, struct target_batch *b,
                               struct target_command *c, bytes answer)
{
    bool existed = begins(answer, "-BUSYKEY") || memmem(answer.p, answer.n, "already exists", 14);
    if (target_passes(answer)) {
        target_fail(t, "%s:%d: %.*s", n->host, n->port, (int)MIN(answer.n, 200u), answer.p + 1);
        note_moved(t, n, answer);
        c->tried |= begins(answer, "-UNCERTAIN");
        return true;
    }
    if (answer.n && answer.p[0] == '-' && !existed)
        return target_fail(t, "%s:%d refused the key \"%.*s\": %.*s", n->host, n->port,
                           (int)MIN(c->key_n, 64u), b->text.p + c->key_at, (int)MIN(answer.n, 200u),
                           answer.p + 1);
    b->left--;
    c->done = true;
    if (existed && !c->tried) b->existed++; /* otherwise it may be what was sent before */
    return true;
}

/* The answers of one node. False: a command was refused for good. */
static bool take_answers(struct target *t, struct target_node *n, struct target_batch *b)
{
    bytes answer;
    u32 i = 0;
    for (; i < n->sent_n && n->fd >= 0 && node_answer(t, n, &answer); i++)
        if (!target_take_answer(t, n, b, &b->commands[n->sent[i]], answer)) return false;
    for (; i < n->sent_n; i++) b->commands[n->sent[i]].tried = true;
    return true;
}

/* All nodes work at the same time. */
static bool attempt(struct target *t, struct target_batch *b)
{
    bool ok = true;
    for (struct target_node *n = t->nodes; n; n = n->next) {
        buf_clear(&n->out);
        n->sent_n = 0;
    }
    queue_batch(t, b);
    for (struct target_node *n = t->nodes; n; n = n->next)
        if (n->sent_n && node_connect(t, n)) node_write(t, n, buf_bytes(&n->out));
    for (struct target_node *n = t->nodes; n && ok; n = n->next) ok = take_answers(t, n, b);
    return ok;
}

bool target_send(struct target *t, struct target_batch *b)
{
    i64 progress_ms = clock_mono_ms();
    while (b->left) {
        u32 left = b->left;
        if (!attempt(t, b)) return false;
        if (b->left < left) progress_ms = clock_mono_ms();
        if (!b->left || (b->left < left && b->left < left / 2)) continue;
        if (clock_mono_ms() - progress_ms > PATIENCE_MS) return false;
        usleep(RETRY_MS * 1000);
        learn_slots_again(t);
    }
    return true;
}
