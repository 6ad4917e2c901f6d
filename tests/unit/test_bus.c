/* The cluster bus: buses of several nodes on one loop, over loopback sockets. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "cluster/bus.h"

#define SECRET "a secret of the cluster"
#define FRAME_MAX (8u << 20)
#define QUEUE_MAX (1u << 20)

static const struct log quiet = {.level = LOG_NOTHING};

struct node {
    struct bus *bus;
    int port;
    struct buf got;       /* every frame: type, length, body */
    u32 frames, accepted, closed, opened, ups, downs;
    const char *refuse;   /* on_accept refuses with this */
    const char *why;      /* of the last connection that was closed */
    struct bus_conn *last; /* that opened */
    bool answers;         /* a frame of a call is sent back */
    bool pauses;          /* after each frame, until the test resumes */
};

struct world {
    uv_loop_t loop;
    u64 rng;
    struct node nodes[3];
};

static void id_of(int i, char id[BUS_NODE_ID + 1])
{
    memset(id, "abc"[i], BUS_NODE_ID);
    id[BUS_NODE_ID] = '\0';
}

static void record(struct node *n, u8 type, bytes body)
{
    u32 size = (u32)body.n;
    buf_append_char(&n->got, (char)type);
    buf_append(&n->got, &size, sizeof size);
    buf_append_bytes(&n->got, body);
    n->frames++;
}

static void on_frame(struct bus_conn *c, u8 type, bytes body)
{
    struct node *n = bus_conn_user(c);
    record(n, type, body);
    if (n->answers) bus_conn_send(c, type, BYTES_LIT("re: "), body);
    if (n->pauses) bus_conn_pause(c, true);
}

static void on_closed(struct bus_conn *c, const char *why)
{
    struct node *n = bus_conn_user(c);
    n->closed++;
    n->why = why;
    if (n->last == c) n->last = NULL;
}

static void on_open(struct bus_conn *c)
{
    struct node *n = bus_conn_user(c);
    n->opened++;
    n->last = c;
}

static const struct bus_conn_ops node_ops = {.on_open = on_open, .on_frame = on_frame, .on_closed = on_closed};

static const struct bus_conn_ops *on_accept(void *owner, const struct bus_hello *h UNUSED, void **user,
                                            const char **why)
{
    struct node *n = owner;
    *user = n;
    *why = n->refuse;
    n->accepted += !n->refuse;
    return n->refuse ? NULL : &node_ops;
}

static void on_peer(void *owner, struct bus_peer *p UNUSED, bool up)
{
    struct node *n = owner;
    if (up) n->ups++;
    else n->downs++;
}

/* A port that is free now: bound once by the kernel's choice. */
static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static void node_start(struct world *w, int i, const char *secret, u64 cluster)
{
    struct node *n = &w->nodes[i];
    struct bus_options o = {.loop = &w->loop, .log = &quiet, .cluster = cluster, .secret = bytes_str(secret),
                            .queue_max = QUEUE_MAX, .frame_max = FRAME_MAX, .greet_timeout_ms = 60000,
                            .owner = n, .on_accept = on_accept, .on_peer = on_peer};
    id_of(i, o.node);
    n->bus = bus_new(&o);
    int rc = UV_EADDRINUSE;
    for (int tries = 0; tries < 20 && rc == UV_EADDRINUSE; tries++) {
        if (!n->port || tries) n->port = free_port();
        rc = bus_listen(n->bus, "127.0.0.1", n->port);
    }
    assert_int_equal(rc, 0);
}

static void node_stop(struct node *n)
{
    if (n->bus) bus_free(n->bus);
    n->bus = NULL;
}

static struct bus_peer *peer_of(struct world *w, int from, int to)
{
    char id[BUS_NODE_ID + 1];
    id_of(to, id);
    return bus_peer_add(w->nodes[from].bus, id, "127.0.0.1", w->nodes[to].port);
}

static void on_wake(uv_timer_t *t UNUSED) {}

/* Turns the loop until the condition holds; a minute is for machines that stand still. */
#define UNTIL(w, condition)                                                       \
    do {                                                                          \
        uv_timer_t wake;                                                          \
        uv_timer_init(&(w)->loop, &wake);                                         \
        uv_timer_start(&wake, on_wake, 1, 5);                                     \
        uv_update_time(&(w)->loop);                                               \
        u64 limit = uv_now(&(w)->loop) + 60000;                                   \
        while (!(condition) && uv_now(&(w)->loop) < limit) uv_run(&(w)->loop, UV_RUN_ONCE); \
        uv_close((uv_handle_t *)&wake, NULL);                                     \
        uv_run(&(w)->loop, UV_RUN_NOWAIT);                                        \
        assert_true(condition);                                                   \
    } while (0)

static int world_open(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    assert_int_equal(uv_loop_init(&w->loop), 0);
    w->rng = 7;
    *state = w;
    return 0;
}

static int world_close(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 3; i++) node_stop(&w->nodes[i]);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0); /* every handle is gone */
    for (int i = 0; i < 3; i++) buf_release(&w->nodes[i].got);
    mem_free(w);
    return 0;
}

/* -- messages ------------------------------------------------------------------------------- */

static void test_frames_arrive_whole_and_in_order(void **state)
{
    struct world *w = *state;
    struct node sent = {0};
    node_start(w, 0, SECRET, 5);
    node_start(w, 1, SECRET, 5);
    struct bus_peer *p = peer_of(w, 0, 1);
    struct buf body = {0};
    for (int i = 0; i < 400; i++) {
        size_t n = rand_below(&w->rng, 20) ? rand_below(&w->rng, 300) : rand_below(&w->rng, 200000);
        u8 type = (u8)rand_below(&w->rng, 256);
        buf_clear(&body);
        while (body.n < n) buf_append_char(&body, (char)rand_below(&w->rng, 256));
        while (bus_peer_queued(p) > QUEUE_MAX / 2) uv_run(&w->loop, UV_RUN_ONCE);
        assert_true(bus_send(p, type, bytes_of(body.p, n / 3), bytes_of(body.p + n / 3, n - n / 3)));
        record(&sent, type, buf_bytes(&body));
    }
    UNTIL(w, w->nodes[1].frames == sent.frames);
    assert_true(bytes_eq(buf_bytes(&w->nodes[1].got), buf_bytes(&sent.got)));
    assert_true(bus_peer_up(p));
    assert_int_equal(w->nodes[0].ups, 1);
    buf_release(&sent.got);
    buf_release(&body);
}

static void test_frames_of_a_turn_leave_together(void **state)
{
    struct world *w = *state;
    node_start(w, 0, SECRET, 5);
    node_start(w, 1, SECRET, 5);
    struct bus_peer *p = peer_of(w, 0, 1);
    assert_true(bus_send(p, 1, BYTES_LIT(""), BYTES_LIT("first")));
    UNTIL(w, w->nodes[1].frames == 1);
    for (int i = 0; i < 100; i++) assert_true(bus_send(p, 2, BYTES_LIT("x"), BYTES_LIT("y")));
    assert_true(bus_peer_queued(p) >= 100 * 14); /* nothing was written yet */
    UNTIL(w, w->nodes[1].frames == 101);
    assert_int_equal(bus_peer_queued(p), 0);
}

static void test_a_peer_that_comes_back_is_reached_again(void **state)
{
    struct world *w = *state;
    node_start(w, 0, SECRET, 5);
    node_start(w, 1, SECRET, 5);
    struct bus_peer *p = peer_of(w, 0, 1);
    bus_send(p, 1, BYTES_LIT(""), BYTES_LIT("one"));
    UNTIL(w, w->nodes[1].frames == 1);
    node_stop(&w->nodes[1]);
    UNTIL(w, w->nodes[0].downs == 1); /* an idle connection notices the end by itself */
    assert_false(bus_peer_up(p));
    node_start(w, 1, SECRET, 5);
    p = peer_of(w, 0, 1);
    UNTIL(w, bus_peer_up(p) || (bus_send(p, 1, BYTES_LIT(""), BYTES_LIT("two")), false));
    UNTIL(w, w->nodes[1].frames >= 2);
}

static void test_a_peer_that_is_not_there_costs_nothing(void **state)
{
    struct world *w = *state;
    node_start(w, 0, SECRET, 5);
    w->nodes[1].port = free_port();
    struct bus_peer *p = peer_of(w, 0, 1);
    u64 calls = 0, queued = 0;
    UNTIL(w, bus_stats(w->nodes[0].bus)->dropped > 100 ||
                 (calls++, queued += bus_send(p, 1, BYTES_LIT(""), BYTES_LIT("hello")), false));
    assert_int_equal(queued + bus_stats(w->nodes[0].bus)->dropped, calls);
    assert_true(bus_peer_queued(p) < QUEUE_MAX + 100);
    assert_int_equal(w->nodes[0].ups, 0);
}

static void test_a_full_queue_drops(void **state)
{
    struct world *w = *state;
    char big[4096] = {0};
    node_start(w, 0, SECRET, 5);
    node_start(w, 1, SECRET, 5);
    struct bus_peer *p = peer_of(w, 0, 1);
    u32 taken = 0;
    while (bus_send(p, 1, BYTES_LIT(""), bytes_of(big, sizeof big))) taken++;
    assert_in_range(taken, QUEUE_MAX / (sizeof big + 12) - 1, QUEUE_MAX / sizeof big + 1);
    assert_int_equal(bus_stats(w->nodes[0].bus)->dropped, 1);
    UNTIL(w, w->nodes[1].frames == taken);
    assert_true(bus_send(p, 1, BYTES_LIT(""), bytes_of(big, sizeof big)));
    UNTIL(w, w->nodes[1].frames == taken + 1);
}

static void test_a_frame_larger_than_the_queue_passes_alone(void **state)
{
    struct world *w = *state;
    struct buf big = {0};
    memset(buf_reserve(&big, 4 << 20), 'x', 4 << 20);
    big.n = 4 << 20;
    node_start(w, 0, SECRET, 5);
    node_start(w, 1, SECRET, 5);
    struct bus_peer *p = peer_of(w, 0, 1);
    assert_true(bus_send(p, 1, BYTES_LIT(""), buf_bytes(&big)));
    assert_false(bus_send(p, 1, BYTES_LIT(""), BYTES_LIT("x")));
    UNTIL(w, w->nodes[1].frames == 1);
    assert_int_equal(w->nodes[1].got.n, 5 + (4 << 20));
    buf_release(&big);
}

/* -- who may speak --------------------------------------------------------------------------- */

/* Node 0 sends to node 1, which must hear nothing. */
static void expect_refusal(struct world *w)
{
    struct bus_peer *p = peer_of(w, 0, 1);
    UNTIL(w, bus_stats(w->nodes[0].bus)->refused + bus_stats(w->nodes[1].bus)->refused > 0 ||
                 (bus_send(p, 1, BYTES_LIT(""), BYTES_LIT("hello")), false));
    for (int i = 0; i < 20; i++) uv_run(&w->loop, UV_RUN_NOWAIT);
    assert_int_equal(w->nodes[1].frames, 0);
    assert_int_equal(w->nodes[0].ups, 0);
    assert_false(bus_peer_up(p));
}

static void test_another_secret(void **state)
{
    struct world *w = *state;
    node_start(w, 0, "something else", 5);
    node_start(w, 1, SECRET, 5);
    expect_refusal(w);
    assert_int_equal(w->nodes[1].accepted, 0);
}

static void test_another_cluster(void **state)
{
    struct world *w = *state;
    node_start(w, 0, SECRET, 6);
    node_start(w, 1, SECRET, 5);
    expect_refusal(w);
}

static void test_another_node_at_that_address(void **state)
{
    struct world *w = *state;
    node_start(w, 0, SECRET, 5);
    node_start(w, 2, SECRET, 5);
    w->nodes[1].port = w->nodes[2].port;
    char id[BUS_NODE_ID + 1];
    id_of(1, id);
    struct bus_peer *p = bus_peer_add(w->nodes[0].bus, id, "127.0.0.1", w->nodes[2].port);
    UNTIL(w, bus_stats(w->nodes[2].bus)->refused > 0 || (bus_send(p, 1, BYTES_LIT(""), BYTES_LIT("x")), false));
    assert_int_equal(w->nodes[2].frames, 0);
}

static void test_a_node_that_is_not_wanted(void **state)
{
    struct world *w = *state;
    node_start(w, 0, SECRET, 5);
    node_start(w, 1, SECRET, 5);
    w->nodes[1].refuse = "it was removed";
    expect_refusal(w);
}

static void test_a_node_without_a_cluster_may_call(void **state)
{
    struct world *w = *state;
    node_start(w, 0, SECRET, 0);
    node_start(w, 1, SECRET, 5);
    w->nodes[1].answers = true;
    struct bus_conn *c = bus_dial(w->nodes[0].bus, "127.0.0.1", w->nodes[1].port, BUS_CALL, "", &node_ops,
                                  &w->nodes[0]);
    bus_conn_send(c, 9, BYTES_LIT("may I "), BYTES_LIT("join?"));
    UNTIL(w, w->nodes[0].frames == 1);
    assert_memory_equal(w->nodes[0].got.p + 5, "re: may I join?", 15);
    assert_string_equal(bus_conn_node(c), "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb");
    assert_int_equal(bus_conn_purpose(c), BUS_CALL);
    bus_conn_finish(c);
    UNTIL(w, w->nodes[1].closed == 1);
}

/* -- hostile bytes --------------------------------------------------------------------------- */

static int raw_connect(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((u16)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static size_t raw_take(int fd, void *to, size_t n)
{
    ssize_t got = n ? recv(fd, to, n, MSG_DONTWAIT) : 0;
    return got > 0 ? (size_t)got : 0;
}

static void raw_recv(struct world *w, int fd, void *to, size_t n)
{
    size_t have = 0;
    UNTIL(w, (have += raw_take(fd, (char *)to + have, n - have)) == n);
}

static void test_a_stranger_learns_nothing(void **state)
{
    struct world *w = *state;
    node_start(w, 1, SECRET, 5);
    for (int round = 0; round < 200; round++) {
        char junk[400], challenge[BUS_CHALLENGE_SIZE], more;
        size_t n = 1 + rand_below(&w->rng, sizeof junk);
        int fd = raw_connect(w->nodes[1].port);
        u64 before = bus_stats(w->nodes[1].bus)->refused;
        raw_recv(w, fd, challenge, sizeof challenge);
        for (size_t i = 0; i < n; i++) junk[i] = (char)rand_below(&w->rng, 256);
        if (round % 2) memcpy(junk, challenge, MIN(n, 8)); /* the right magic */
        assert_true(send(fd, junk, n, MSG_NOSIGNAL) >= 0);
        shutdown(fd, SHUT_WR);
        UNTIL(w, bus_stats(w->nodes[1].bus)->refused > before);
        assert_true(recv(fd, &more, 1, MSG_DONTWAIT) <= 0); /* not a byte beyond the challenge */
        close(fd);
    }
    assert_int_equal(w->nodes[1].accepted, 0);
}

/* A node that knows the secret, spoken by hand. */
static int raw_greet(struct world *w, int port)
{
    struct bus_nonces n = {.connector = {1, 2, 3}};
    struct bus_hello h = {.purpose = BUS_MESSAGES, .cluster = 5};
    struct buf out = {0};
    char challenge[BUS_CHALLENGE_SIZE], welcome[BUS_WELCOME_SIZE], node[BUS_NODE_ID + 1];
    u64 cluster;
    int fd = raw_connect(port);
    id_of(0, h.from);
    raw_recv(w, fd, challenge, sizeof challenge);
    assert_int_equal(bus_challenge_read(bytes_of(challenge, sizeof challenge), &n), OK);
    bus_hello_write(&out, &h, &n, BYTES_LIT(SECRET));
    assert_int_equal(send(fd, out.p, out.n, MSG_NOSIGNAL), out.n);
    raw_recv(w, fd, welcome, sizeof welcome);
    assert_int_equal(bus_welcome_read(bytes_of(welcome, sizeof welcome), node, &cluster, &n, BYTES_LIT(SECRET)),
                     OK);
    assert_int_equal(cluster, 5);
    buf_release(&out);
    return fd;
}

static void test_a_hello_can_not_be_replayed(void **state)
{
    struct world *w = *state;
    struct bus_nonces n = {.connector = {1, 2, 3}};
    struct bus_hello h = {.purpose = BUS_MESSAGES, .cluster = 5};
    struct buf out = {0};
    char challenge[BUS_CHALLENGE_SIZE];
    node_start(w, 1, SECRET, 5);
    id_of(0, h.from);
    int fd = raw_connect(w->nodes[1].port);
    raw_recv(w, fd, challenge, sizeof challenge);
    assert_int_equal(bus_challenge_read(bytes_of(challenge, sizeof challenge), &n), OK);
    bus_hello_write(&out, &h, &n, BYTES_LIT(SECRET));
    assert_int_equal(send(fd, out.p, out.n, MSG_NOSIGNAL), out.n);
    UNTIL(w, w->nodes[1].accepted == 1);
    int again = raw_connect(w->nodes[1].port);
    assert_int_equal(send(again, out.p, out.n, MSG_NOSIGNAL), out.n);
    UNTIL(w, bus_stats(w->nodes[1].bus)->refused == 1);
    assert_int_equal(w->nodes[1].accepted, 1);
    close(fd);
    close(again);
    buf_release(&out);
}

static void test_damaged_frames_end_the_connection(void **state)
{
    struct world *w = *state;
    struct node *n = &w->nodes[1];
    static const struct { const char *p; size_t n; const char *why; } bad[] = {
        {"\0\0\0\0" "\1\0\0\0" "\1\0\0\0" "x", 13, "a frame has a wrong checksum"},
        {"\0\0\0\0" "\1\0\0\0" "\1\1\0\0" "x", 13, "a frame has a wrong checksum"},
        {"\0\0\0\0" "\377\377\377\377" "\1\0\0\0", 12, "a frame is longer than allowed"},
    };
    node_start(w, 1, SECRET, 5);
    for (u32 i = 0; i < ARRAY_LEN(bad); i++) {
        int fd = raw_greet(w, n->port);
        assert_int_equal(send(fd, bad[i].p, bad[i].n, MSG_NOSIGNAL), bad[i].n);
        UNTIL(w, n->closed == i + 1);
        assert_string_equal(n->why, bad[i].why);
        close(fd);
    }
    assert_int_equal(n->frames, 0);
}

static void test_silent_strangers_have_to_go(void **state)
{
    struct world *w = *state;
    struct node *n = &w->nodes[1];
    struct bus_options o = {.loop = &w->loop, .log = &quiet, .cluster = 5, .secret = BYTES_LIT(SECRET),
                            .queue_max = QUEUE_MAX, .frame_max = FRAME_MAX, .greet_timeout_ms = 100,
                            .owner = n, .on_accept = on_accept};
    int fds[300];
    char some[64];
    id_of(1, o.node);
    n->bus = bus_new(&o);
    int rc = UV_EADDRINUSE;
    while (rc == UV_EADDRINUSE) rc = bus_listen(n->bus, "127.0.0.1", n->port = free_port());
    for (u32 i = 0; i < ARRAY_LEN(fds); i++) {
        fds[i] = raw_connect(n->port);
        uv_run(&w->loop, UV_RUN_NOWAIT);
    }
    assert_true(bus_stats(n->bus)->refused > 0); /* more than may wait at once */
    for (u32 i = 0; i < ARRAY_LEN(fds); i++) {
        ssize_t got = -1;
        UNTIL(w, (got = recv(fds[i], some, sizeof some, MSG_DONTWAIT)) == 0 || (got < 0 && errno == ECONNRESET));
        close(fds[i]);
    }
}

/* -- bulk ------------------------------------------------------------------------------------- */

struct bulk {
    u32 to_send, sent;
    size_t most_queued;
};

static void bulk_feed(struct bus_conn *c)
{
    struct bulk *b = bus_conn_user(c);
    static const char chunk[100000];
    while (b->sent < b->to_send && bus_conn_queued(c) < 2 * sizeof chunk) {
        bus_conn_send(c, 3, bytes_of(&b->sent, sizeof b->sent), bytes_of(chunk, sizeof chunk));
        b->sent++;
    }
    b->most_queued = MAX(b->most_queued, bus_conn_queued(c));
    if (b->sent == b->to_send) bus_conn_finish(c);
}

static void bulk_frame(struct bus_conn *c UNUSED, u8 type UNUSED, bytes body UNUSED) { fail(); }

static void test_bulk_keeps_its_queue_short_and_can_be_paused(void **state)
{
    static const struct bus_conn_ops ops = {.on_open = bulk_feed, .on_drained = bulk_feed,
                                            .on_frame = bulk_frame};
    struct world *w = *state;
    struct node *n = &w->nodes[1];
    struct bulk b = {.to_send = 300};
    node_start(w, 0, SECRET, 5);
    node_start(w, 1, SECRET, 5);
    n->pauses = true;
    bus_dial(w->nodes[0].bus, "127.0.0.1", n->port, BUS_BULK, "", &ops, &b);
    UNTIL(w, n->accepted == 1);
    for (u32 i = 1; i <= b.to_send; i++) {
        UNTIL(w, n->frames == i);
        for (int turn = 0; turn < 3; turn++) uv_run(&w->loop, UV_RUN_NOWAIT);
        assert_int_equal(n->frames, i); /* paused: no frame more */
        bytes frame = bytes_of(n->got.p + (i - 1) * (5 + 100004), 5 + 100004);
        u32 number;
        memcpy(&number, frame.p + 5, sizeof number);
        assert_int_equal(number, i - 1);
        if (n->last) bus_conn_pause(n->last, false);
    }
    assert_true(b.most_queued <= 3 * 100016);
}

/* -- the end ------------------------------------------------------------------------------------ */

static void test_the_end_in_the_middle_of_everything(void **state)
{
    struct world *w = *state;
    for (int round = 0; round < 50; round++) {
        struct bus_peer *p;
        for (int i = 0; i < 3; i++) node_start(w, i, SECRET, 5);
        for (int i = 0; i < 3; i++) {
            p = peer_of(w, i, (i + 1) % 3);
            for (int k = 0; k < 5; k++) bus_send(p, 1, BYTES_LIT(""), BYTES_LIT("x"));
            bus_dial(w->nodes[i].bus, "localhost", w->nodes[(i + 2) % 3].port, BUS_CALL, "", &node_ops,
                     &w->nodes[i]);
        }
        for (u64 turns = rand_below(&w->rng, 12); turns > 0; turns--) uv_run(&w->loop, UV_RUN_NOWAIT);
        for (int i = 0; i < 3; i++) node_stop(&w->nodes[i]);
        uv_run(&w->loop, UV_RUN_DEFAULT); /* ends only when no handle is left */
    }
}

static void test_greetings_are_bound_to_every_byte(void **state UNUSED)
{
    struct bus_nonces n = {.acceptor = {1}, .connector = {2}};
    struct bus_hello h = {.purpose = BUS_BULK, .cluster = 77}, back;
    struct buf hello = {0}, welcome = {0};
    char node[BUS_NODE_ID + 1];
    u64 cluster;
    id_of(0, h.from);
    id_of(1, h.to);
    bus_hello_write(&hello, &h, &n, BYTES_LIT(SECRET));
    bus_welcome_write(&welcome, h.to, 77, &n, BYTES_LIT(SECRET));
    assert_int_equal(hello.n, BUS_HELLO_SIZE);
    assert_int_equal(welcome.n, BUS_WELCOME_SIZE);
    assert_int_equal(bus_hello_read(buf_bytes(&hello), &back, &n, BYTES_LIT(SECRET)), OK);
    assert_int_equal(back.purpose, BUS_BULK);
    assert_int_equal(back.cluster, 77);
    assert_string_equal(back.from, h.from);
    assert_string_equal(back.to, h.to);
    assert_int_equal(bus_welcome_read(buf_bytes(&welcome), node, &cluster, &n, BYTES_LIT(SECRET)), OK);
    for (size_t bit = 0; bit < hello.n * 8; bit++) {
        struct bus_nonces copy = n;
        hello.p[bit / 8] ^= (char)(1 << bit % 8);
        assert_int_not_equal(bus_hello_read(buf_bytes(&hello), &back, &copy, BYTES_LIT(SECRET)), OK);
        hello.p[bit / 8] ^= (char)(1 << bit % 8);
    }
    for (size_t bit = 0; bit < welcome.n * 8; bit++) {
        welcome.p[bit / 8] ^= (char)(1 << bit % 8);
        assert_int_not_equal(bus_welcome_read(buf_bytes(&welcome), node, &cluster, &n, BYTES_LIT(SECRET)), OK);
        welcome.p[bit / 8] ^= (char)(1 << bit % 8);
    }
    struct bus_nonces other = n;
    other.acceptor[31] ^= 1;
    assert_int_equal(bus_hello_read(buf_bytes(&hello), &back, &other, BYTES_LIT(SECRET)), ERR_TYPE);
    assert_int_equal(bus_hello_read(buf_bytes(&hello), &back, &n, BYTES_LIT("")), ERR_TYPE);
    buf_release(&hello);
    buf_release(&welcome);
}

#define BUS_TEST(f) cmocka_unit_test_setup_teardown(f, world_open, world_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUS_TEST(test_frames_arrive_whole_and_in_order),
        BUS_TEST(test_frames_of_a_turn_leave_together),
        BUS_TEST(test_a_peer_that_comes_back_is_reached_again),
        BUS_TEST(test_a_peer_that_is_not_there_costs_nothing),
        BUS_TEST(test_a_full_queue_drops),
        BUS_TEST(test_a_frame_larger_than_the_queue_passes_alone),
        BUS_TEST(test_another_secret),
        BUS_TEST(test_another_cluster),
        BUS_TEST(test_another_node_at_that_address),
        BUS_TEST(test_a_node_that_is_not_wanted),
        BUS_TEST(test_a_node_without_a_cluster_may_call),
        BUS_TEST(test_a_stranger_learns_nothing),
        BUS_TEST(test_a_hello_can_not_be_replayed),
        BUS_TEST(test_damaged_frames_end_the_connection),
        BUS_TEST(test_silent_strangers_have_to_go),
        BUS_TEST(test_bulk_keeps_its_queue_short_and_can_be_paused),
        BUS_TEST(test_the_end_in_the_middle_of_everything),
        cmocka_unit_test(test_greetings_are_bound_to_every_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
