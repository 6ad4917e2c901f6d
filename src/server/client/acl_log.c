#include "server/client/acl_log.h"

#include "base/alloc.h"

#define TOGETHER_MS 60000
#define LOOK_BACK 10      /* a new entry is compared with this many */
#define SHOWN_MAX 4096    /* a longer name or key is cut: clients choose them */

static void unlink_entry(struct acl_log *l, struct acl_entry *e)
{
    *(e->newer ? &e->newer->older : &l->newest) = e->older;
    *(e->older ? &e->older->newer : &l->oldest) = e->newer;
    l->count--;
}

static void acl_log_push(struct acl_log *l, struct acl_entry *e)
{
    e->newer = NULL;
    e->older = l->newest;
    *(l->newest ? &l->newest->newer : &l->oldest) = e;
    l->newest = e;
    l->count++;
}

static void free_entry(struct acl_entry *e)
{
    buf_release(&e->what);
    buf_release(&e->user);
    buf_release(&e->client);
    mem_free(e);
}

static struct acl_entry *acl_log_find(const struct acl_log *l, const struct acl_entry *like)
{
    int steps = LOOK_BACK;
    for (struct acl_entry *e = l->newest; e && steps--; e = e->older) {
        if (e->denial == like->denial && e->where == like->where &&
            like->time_ms - e->time_ms <= TOGETHER_MS &&
            bytes_eq(buf_bytes(&e->what), buf_bytes(&like->what)) &&
            bytes_eq(buf_bytes(&e->user), buf_bytes(&like->user)))
            return e;
    }
    return NULL;
}

void acl_log_trim(struct acl_log *l, u64 max_len)
{
    for (struct acl_entry *e; l->count > max_len && (e = l->oldest);) {
        unlink_entry(l, e);
        free_entry(e);
    }
}

void acl_log_add(struct acl_log *l, u64 max_len, i64 now_ms, enum acl_denial denial, enum acl_context where,
                 bytes what, bytes user, struct buf client)
{
    struct acl_entry *e = mem_zalloc(sizeof *e);
    *e = (struct acl_entry){.denial = denial, .where = where, .created_ms = now_ms, .time_ms = now_ms};
    buf_append(&e->what, what.p, MIN(what.n, SHOWN_MAX));
    buf_append(&e->user, user.p, MIN(user.n, SHOWN_MAX));
    struct acl_entry *known = acl_log_find(l, e);
    l->denied[denial]++;
    if (known) {
        free_entry(e);
        e = known;
        unlink_entry(l, e);
        buf_release(&e->client);
        e->time_ms = now_ms;
    } else {
        e->id = l->next_id++;
    }
    e->client = client;
    e->count++;
    acl_log_push(l, e);
    acl_log_trim(l, max_len);
}
