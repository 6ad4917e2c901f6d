#include "server/prefault.h"

#include "base/alloc.h"
#include "exec/route.h"
#include "server/server.h"

#define PREFAULT_MORE 4096 /* a copy has a key and headers, too */

static void prefault_in_worker(uv_work_t *work)
{
    const struct prefault *p = &((struct server *)work->data)->prefault;
    for (u32 i = 0; i < PREFAULT_COPIES; i++)
        if (p->memory[i]) mem_populate(p->memory[i], p->each);
}

static void free_memory(struct prefault *p)
{
    for (u32 i = 0; i < PREFAULT_COPIES; i++) {
        mem_free(p->memory[i]);
        p->memory[i] = NULL;
    }
}

static void prefault_over(struct server *s)
{
    s->prefault.conn = NULL;
    free_memory(&s->prefault);
    net_resume(&s->net, HOLD_MEMORY);
}

static void prefault_on_loop(uv_work_t *work, int status UNUSED)
{
    struct server *s = work->data;
    s->prefault.working = false;
    if (s->prefault.conn) conn_resume(s->prefault.conn, HOLD_MEMORY);
    else prefault_over(s);
}

static bool prefault_begin(struct server *s, struct conn *c, size_t n)
{
    struct prefault *p = &s->prefault;
    p->work.data = s;
    p->each = n + PREFAULT_MORE;
    for (u32 i = 0; i < node_engine(&s->node)->caps.value_copies; i++) p->memory[i] = mem_alloc(p->each);
    p->working = uv_queue_work(&s->loop, &p->work, prefault_in_worker, prefault_on_loop) == 0;
    if (p->working) p->conn = c;
    else free_memory(p);
    return p->working;
}

/* Only a request that begins its connection's input: another would be copied when it is held back. */
static bool is_worth_it(struct server *s, const struct net_request *q, const bytes *argv)
{
    if (q->raw != q->conn->lent.p) return false;
    if (!node_engine(&s->node)->caps.value_copies || s->cluster || s->node.script) return false;
    if (q->conn->session.tx || q->conn->class == CONN_REPLICA) return false;
    const struct command *cmd = node_find(&s->node, argv[0]);
    return cmd && cmd->flags & CMD_WRITE;
}

bool prefault_must_wait(struct server *s, const struct net_request *q, const bytes *argv)
{
    struct prefault *p = &s->prefault;
    if (p->conn != q->conn) {
        if (!is_worth_it(s, q, argv)) return false;
        return p->conn || p->working || prefault_begin(s, q->conn, argv[q->argc - 1].n);
    }
    if (!p->working) free_memory(p);
    return p->working;
}

void prefault_forget(struct server *s, const struct conn *c)
{
    if (s->prefault.conn != c) return;
    s->prefault.conn = NULL;
    if (!s->prefault.working) prefault_over(s);
}
