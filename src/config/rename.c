/* A list, because it is empty or very short; an empty one costs nothing. */
#include "config/rename.h"

#include "base/alloc.h"
#include "config/config_codec.h"

static bool same(const struct buf *name, bytes other)
{
    return name->n == other.n && bytes_is(other, name->p);
}

/* The renaming that introduced this name, or removed it. */
static struct command_rename *giver(const struct config *c, bytes name)
{
    for (u32 i = 0; name.n && i < c->rename_count; i++)
        if (same(&c->renames[i].to, name)) return &c->renames[i];
    return NULL;
}

static struct command_rename *taker(const struct config *c, bytes name)
{
    for (u32 i = 0; i < c->rename_count; i++)
        if (same(&c->renames[i].from, name)) return &c->renames[i];
    return NULL;
}

const struct command *rename_find(void *config, bytes name)
{
    const struct config *c = config;
    if (LIKELY(c->rename_count == 0)) return command_find(name);
    const struct command_rename *r = giver(c, name);
    if (r) return command_find(buf_bytes(&r->from));
    return taker(c, name) ? NULL : command_find(name);
}

bool rename_add(struct config *c, bytes from, bytes to, struct buf *why)
{
    if (!rename_find(c, from)) return config_fail(why, "No such command in rename-command");
    if (to.n && rename_find(c, to)) return config_fail(why, "Target command name already exists");
    struct command_rename *r = giver(c, from);
    if (r) { /* renamed before: only the new name changes */
        config_text(&r->to, to);
        return true;
    }
    c->renames = mem_realloc(c->renames, (c->rename_count + 1) * sizeof *c->renames);
    r = &c->renames[c->rename_count++];
    *r = (struct command_rename){0};
    config_text(&r->from, from);
    config_text(&r->to, to);
    return true;
}
