/* Clients and their histories. */
#include "sim/sim.h"

#include <stdlib.h>

#include "base/alloc.h"

enum { OBJECT_OPS_MAX = 180, OBJECT_UNKNOWN_MAX = 8, TIMEOUT_US = 3000000 };

static u32 object_new(struct sim *s, bool pair)
{
    if (s->objects_n == s->objects_cap) {
        s->objects_cap = s->objects_cap ? s->objects_cap * 2 : 64;
        s->objects = mem_realloc(s->objects, s->objects_cap * sizeof(*s->objects));
    }
    s->objects[s->objects_n] = (struct object){.key = s->keys_used, .pair = pair};
    s->keys_used += 2;
    return s->objects_n++;
}

static u32 op_new(struct sim *s, u32 object, enum op_type type)
{
    struct object *o = &s->objects[object];
    if (s->ops_n == s->ops_cap) {
        s->ops_cap = s->ops_cap ? s->ops_cap * 2 : 1024;
        s->ops = mem_realloc(s->ops, s->ops_cap * sizeof(*s->ops));
    }
    if (o->n == o->cap) {
        o->cap = o->cap ? o->cap * 2 : 64;
        o->ops = mem_realloc(o->ops, o->cap * sizeof(u32));
    }
    u32 index = s->ops_n++;
    o->ops[o->n++] = index;
    s->ops[index] = (struct op){.object = object, .client = CLIENTS, .pair = o->pair};
    s->ops[index].c = (struct check_op){
        .type = type, .start_us = s->now_us, .end_us = UINT64_MAX, .hint = UINT64_MAX};
    s->ops[index].c.value = (u64)(index + 1) << 16;
    return index;
}

static void client_wait(struct sim *s, u32 client, u64 delay_us)
{
    sim_post(s, (struct event){.at_us = s->now_us + delay_us,
                               .type = EV_CLIENT,
                               .a = client,
                               .b = s->client[client].op_serial});
}

static u64 wall_min(struct sim *s)
{
    u64 least = UINT64_MAX;
    for (u32 i = 1; i <= s->nodes_n; i++) least = MIN(least, node_wall_ms(&s->node[i]));
    return least;
}

static enum op_type client_choose(struct sim *s, bool pair)
{
    if (s->calm) return OP_GET;
    u64 r = sim_below(s, 100);
    if (s->idle && sim_chance(s, 95)) return OP_GET;
    if (pair) return r < 50 ? OP_GET : OP_SET;
    if (r < 40) return OP_GET;
    if (r < 60) return OP_SET;
    if (r < 68) return OP_SET_NX;
    if (r < 74) return OP_SET_XX;
    if (r < 80) return OP_GETSET;
    return r < 96 ? OP_INCR : OP_DEL;
}

static void client_begin(struct sim *s, u32 client)
{
    if (s->hush) return;
    struct client *c = &s->client[client];
    u32 slot = (u32)sim_below(s, OBJECTS_LIVE);
    struct object *o = &s->objects[s->live[slot]];
    u64 to = c->guess[slot];
    if (!s->calm && (o->n >= OBJECT_OPS_MAX || o->unknown >= OBJECT_UNKNOWN_MAX)) {
        o->retired = true;
        s->live[slot] = object_new(s, o->pair);
        o = &s->objects[s->live[slot]];
    }
    enum op_type type = client_choose(s, o->pair);
    u32 index = op_new(s, s->live[slot], type);
    struct op *op = &s->ops[index];
    op->client = client, op->place = slot, op->min_wall_ms = wall_min(s);
    bool sets = type == OP_SET || type == OP_SET_NX || type == OP_SET_XX || type == OP_GETSET;
    if (sets && sim_chance(s, 70))
        op->c.ttl_ms = 1 + sim_below(s, sim_chance(s, 30) ? 10000 : 1500);
    op->follower = type == OP_GET && sim_chance(s, s->idle ? 2 : 30);
    if (op->follower || !to || sim_chance(s, 10)) to = 1 + sim_below(s, s->nodes_n);
    c->op = index + 1;
    c->op_serial++;
    sim_post(s, (struct event){.at_us = s->now_us + 100 + sim_below(s, 2000),
                               .type = EV_REQUEST,
                               .node = (u32)to,
                               .a = index});
    client_wait(s, client, TIMEOUT_US / (1 + sim_below(s, 5)));
}

void clients_start(struct sim *s)
{
    for (u32 i = 0; i < OBJECTS_LIVE; i++) s->live[i] = object_new(s, i >= OBJECTS_LIVE - 2);
    for (u32 i = 0; i < CLIENTS; i++) client_wait(s, i, sim_below(s, 1000000));
}

static void client_next(struct sim *s, u32 client)
{
    s->client[client].op = 0;
    s->client[client].op_serial++;
    client_wait(s, client, 1000 + sim_below(s, s->rest_us ? s->rest_us : s->calm || s->idle ? 400000 : 200000));
}

void client_event(struct sim *s, struct event *e)
{
    if (e->type == EV_CLIENT) {
        struct client *c = &s->client[e->a];
        if (e->b != c->op_serial) return;
        if (c->op) { /* no reply in time */
            struct op *op = &s->ops[c->op - 1];
            if (op->c.type != OP_GET) s->objects[op->object].unknown++;
            c->guess[op->place] = 0;
            client_next(s, (u32)e->a);
        } else {
            client_begin(s, (u32)e->a);
        }
        return;
    }
    struct op *op = &s->ops[e->a];
    if (op->client >= CLIENTS || s->client[op->client].op != e->a + 1) return; /* too late */
    struct client *c = &s->client[op->client];
    if (op->outcome == OP_DONE) {
        op->outcome = OP_REPLIED, op->c.end_us = s->now_us;
        s->replies++;
        s->late_replies_ok += s->calm;
        if (op->torn) sim_fail(s, "operation %llu saw half of a transaction", (unsigned long long)e->a);
        if (op->deadline_seen_ms && op->deadline_seen_ms <= op->min_wall_ms && s->stepped_us < op->c.start_us)
            sim_fail(s, "operation %llu saw a key after its deadline by every clock",
                     (unsigned long long)e->a);
        if (!op->follower) c->guess[op->place] = e->b;
    } else {
        c->guess[op->place] = e->b;
    }
    client_next(s, op->client);
}

static bool op_alive(const struct cell *c, u64 now_ms)
{
    return c->exists && (!c->deadline_ms || now_ms < c->deadline_ms);
}

/* Half of a pair may have been reclaimed already, when both are dead. */
static bool op_is_torn(const struct cell *one, const struct cell *two, u64 now_ms)
{
    bool alive = op_alive(one, now_ms);
    return alive != op_alive(two, now_ms) || (alive && memcmp(one, two, sizeof(*one)));
}

void op_run(struct op *op, u64 now_ms, struct cell *one, struct cell *two)
{
    struct check_op *c = &op->c;
    bool alive = op_alive(one, now_ms);
    struct cell set = {true, c->value, c->ttl_ms ? now_ms + c->ttl_ms : 0};
    c->found = alive;
    c->found_value = alive ? one->value : 0;
    op->deadline_seen_ms = alive ? one->deadline_ms : 0;
    switch (c->type) {
    case OP_GET: op->torn = op->pair && op_is_torn(one, two, now_ms); break;
    case OP_SET:
        *one = set;
        if (op->pair) *two = set;
        break;
    case OP_SET_NX:
        c->found = !alive;
        if (!alive) *one = set;
        break;
    case OP_SET_XX:
        if (alive) *one = set;
        break;
    case OP_GETSET: *one = set; break;
    case OP_INCR:
        if (!alive) *one = (struct cell){true, 0, 0};
        c->found_value = ++one->value;
        break;
    case OP_DEL:
        if (alive) *one = (struct cell){0};
        break;
    default: break;
    }
}

/* The log's order; a child's log starts again, in a later epoch. */
u64 op_hint(const struct member *m, u64 i) { return ((u64)m->at.epoch.version << 48) + (m->at.index << 8) + i; }

void op_evaluated(struct member *m, u32 index, u64 now_ms, u64 hint)
{
    struct sim *s = m->node->sim;
    struct op *op = &s->ops[index];
    if (op->outcome != OP_SENT) sim_fail(s, "operation %u ran twice", index);
    op->outcome = OP_EVALUATED;
    op->c.time_ms = now_ms, op->c.hint = hint;
    if (now_ms > s->wall_max_ms) sim_fail(s, "operation %u ran in the future of every clock", index);
    if (group_is_leader(m->group) && !op->follower && now_ms < node_wall_ms(m->node))
        sim_fail(s, "operation %u ran in the past of its leader", index);
}

static void op_reply(struct node *n, u32 index)
{
    struct sim *s = n->sim;
    u64 leader = s->ops[index].outcome == OP_DONE ? n->id : node_hint(n, index);
    if (sim_chance(s, 1)) return;
    sim_post(s,
             (struct event){
                 .at_us = s->now_us + 100 + sim_below(s, 2000), .type = EV_REPLY, .a = index, .b = leader});
}

void op_done(struct node *n, u32 index, u64 hint)
{
    struct op *op = &n->sim->ops[index];
    op->outcome = OP_DONE;
    if (hint) op->c.hint = hint;
    n->sim->done_ops++;
    op_reply(n, index);
}

void op_moved(struct node *n, u32 index)
{
    n->sim->ops[index].outcome = OP_NOT_DONE;
    op_reply(n, index);
}

static void client_check_object(struct sim *s, u32 index)
{
    struct object *o = &s->objects[index];
    struct check_op ops[CHECK_OPS_MAX];
    u32 n = 0;
    for (u32 i = 0; i < o->n && n < CHECK_OPS_MAX; i++) {
        const struct op *op = &s->ops[o->ops[i]];
        bool replied = op->outcome == OP_REPLIED,
             ran = replied || op->outcome == OP_EVALUATED || op->outcome == OP_DONE;
        if (!ran || (op->c.type == OP_GET && !replied)) continue;
        ops[n++] = op->c;
    }
    enum check_verdict v = check_object(ops, n);
    if (v == CHECK_OK) return;
    check_print(ops, n);
    sim_fail(s, "object %u: %s", index,
             v == CHECK_VIOLATION ? "its history is not linearizable" : "undecided");
}

void clients_check(struct sim *s)
{
    for (u32 i = 0; i < s->objects_n; i++) client_check_object(s, i);
}
