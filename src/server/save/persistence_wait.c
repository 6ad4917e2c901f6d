/* Which requests have to wait for a snapshot: see persistence_must_wait. */
#include "base/alloc.h"
#include "command/commands.h"
#include "exec/multi.h"
#include "server/server.h"

#define KEYS_AT_ONCE 64

/* A value that is replaced or removed as a whole (KEY_OW, KEY_RM) is kept by the engine until it is saved: no
 * need to wait. */
static bool changes_heavy_key(struct server *s, u32 db, const struct command *cmd, int argc,
                              const bytes *argv)
{
    struct engine *e = lone_region(s)->eng;
    struct key_use few[KEYS_AT_ONCE], *uses = few;
    int n = command_keys(cmd, argc, argv, few, KEYS_AT_ONCE);
    bool heavy = false;
    if (n > KEYS_AT_ONCE) {
        uses = mem_alloc((size_t)n * sizeof *uses);
        command_keys(cmd, argc, argv, uses, n);
    }
    for (int i = 0; i < n && !heavy; i++)
        heavy = (uses[i].flags & KEY_RW) && e->ops->snapshot.heavy(e, db, argv[uses[i].at]);
    if (uses != few) mem_free(uses);
    return heavy;
}

static bool replaces_dump(const struct command *cmd, int argc, const bytes *argv)
{
    return cmd->run == cmd_flushall || cmd->run == cmd_shutdown ||
           (cmd->run == cmd_debug && argc > 1 && bytes_is(argv[1], "reload"));
}

static bool command_must_wait(struct server *s, u32 db, const struct command *cmd, int argc,
                              const bytes *argv)
{
    const struct persistence *p = &s->persist;
    if (snapshot_finishing_save(p)) return replaces_dump(cmd, argc, argv);
    bool writes = cmd->flags & (CMD_WRITE | CMD_MAY_REPLICATE); /* the keys of a script, too */
    return p->saver && writes && changes_heavy_key(s, db, cmd, argc, argv);
}

/* EXEC waits if any of its queued commands has to. */
static bool queue_must_wait(struct server *s, const struct session *session)
{
    const struct transaction *tx = session->tx;
    i64 db = session->db;
    bool wait = false;
    for (u32 i = 0; i < tx->count && !wait; i++) {
        const struct queued *q = tx->queue[i];
        if (q->cmd->run == cmd_select) (void)!num_parse_i64(q->argv[1], &db);
        bool exists = db >= 0 && db < (i64)lone_region(s)->eng->databases;
        wait = exists && command_must_wait(s, (u32)db, q->cmd, q->argc, q->argv);
    }
    return wait;
}

bool persistence_must_wait(struct server *s, const struct net_request *q)
{
    const struct session *session = &q->conn->session;
    const bytes *argv = s->net.tick.args + q->argv_at;
    const struct command *cmd = node_find(&s->node, argv[0]);
    bool wait;
    if (!cmd) return false;
    if (!multi_open(session)) wait = command_must_wait(s, session->db, cmd, (int)q->argc, argv);
    else wait = cmd->run == cmd_exec && queue_must_wait(s, session);
    s->persist.holding |= wait;
    return wait;
}
