/* CONFIG GET, SET, REWRITE, RESETSTAT and HELP.
 *
 * CONFIG SET of several directives is atomic: everything that can be refused is refused before anything
 * changes; a later failure is undone by setting the previous values again. */
#include <errno.h>

#include "base/alloc.h"
#include "base/glob.h"
#include "command/commands.h"
#include "server/client/users.h"

/* -- GET ---------------------------------------------------------------------------------- */

struct shown {
    struct ctx *c;
    bool *name, *alias; /* by directive: already in the reply */
    size_t count;
};

static void config_get_add(struct shown *s, const struct directive *d, bytes name, bool by_alias)
{
    bool *seen = (by_alias ? s->alias : s->name) + (d - config_at(0));
    if (*seen) return;
    *seen = true;
    s->count++;
    struct buf value = {0};
    config_get(&s->c->server->config, d, &value);
    reply_bulk(s->c->out, name);
    reply_bulk(s->c->out, buf_bytes(&value));
    buf_release(&value);
}

static void show_matching(struct shown *s, bytes pattern)
{
    for (u32 i = 0; i < config_count(); i++) {
        const struct directive *d = config_at(i);
        bytes name = bytes_str(d->name), alias = bytes_str(d->alias);
        if (d->flags & CONFIG_HIDDEN) continue;
        if (glob_match(pattern, name, true)) config_get_add(s, d, name, false);
        if (alias.n && glob_match(pattern, alias, true)) config_get_add(s, d, alias, true);
    }
}

static bool is_pattern(bytes s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '*' || s.p[i] == '?' || s.p[i] == '[') return true;
    return false;
}

void cmd_config_get(struct ctx *c)
{
    struct shown s = {.c = c};
    s.name = mem_zalloc(2 * config_count() * sizeof *s.name);
    s.alias = s.name + config_count();
    size_t mark = reply_mark(c->out);
    for (int i = 2; i < c->argc; i++) {
        bool by_alias = false;
        const struct directive *d = NULL;
        if (is_pattern(c->argv[i])) show_matching(&s, c->argv[i]);
        else if ((d = config_find(c->argv[i], &by_alias))) config_get_add(&s, d, c->argv[i], by_alias);
    }
    reply_map_at(c->out, mark, s.count);
    mem_free(s.name);
}

/* -- SET: checks before anything changes ----------------------------------------------------- */

struct change {
    const struct directive *d;
    const char *name; /* the directive's name or, if that was used, its alias */
    bytes value;
    struct buf before;
};

struct changes {
    struct change *v;
    u32 n;
};

static bool is_local(const struct ctx *c)
{
    const struct conn *conn = conn_of(c->session);
    return conn->is_unix || conn->is_loopback;
}

static bool may_set_protected(const struct ctx *c)
{
    bytes allowed = buf_bytes(&c->server->config.enable_protected_configs);
    return bytes_is(allowed, "yes") || (bytes_is(allowed, "local") && is_local(c));
}

static bool repeated(const struct changes *all, u32 at)
{
    for (u32 i = 0; i < at; i++)
        if (all->v[i].name == all->v[at].name) return true;
    return false;
}

static void config_refuse(struct ctx *c, const char *name, bytes why)
{
    reply_errorf(c->out, "ERR CONFIG SET failed (possibly related to argument '%s') - %.*s", name,
                 (int)why.n, why.p);
}

static bool stays(const struct ctx *c, const struct change *ch)
{
    struct buf now = {0};
    if (!(ch->d->flags & CONFIG_AS_IT_IS)) return false;
    config_get(&c->server->config, ch->d, &now);
    bool same = bytes_eq(buf_bytes(&now), ch->value);
    buf_release(&now);
    return same;
}

/* Finds all directives; false: the first problem has been replied. */
static bool config_admit(struct ctx *c, struct changes *all)
{
    for (u32 i = 0; i < all->n; i++) {
        struct change *ch = &all->v[i];
        bytes name = c->argv[2 + 2 * i];
        bool by_alias = false;
        const char *why = NULL;
        ch->d = config_find(name, &by_alias);
        ch->value = c->argv[3 + 2 * i];
        if (!ch->d) {
            reply_errorf(c->out, "ERR Unknown option or number of arguments for CONFIG SET - "
                                 "'%.*s'", (int)name.n, name.p);
            return false;
        }
        if ((ch->d->flags & CONFIG_LOADED) && ctx_node(c)->loading) {
            reply_error(c->out, REGION_LOADING);
            return false;
        }
        ch->name = by_alias ? ch->d->alias : ch->d->name;
        if (ch->d->flags & CONFIG_IMMUTABLE && !stays(c, ch)) why = "can't set immutable config";
        else if ((ch->d->flags & CONFIG_PROTECTED) && !may_set_protected(c))
            why = "can't set protected config";
        else if (repeated(all, i)) why = "duplicate parameter";
        if (why) {
            config_refuse(c, ch->name, bytes_str(why));
            return false;
        }
    }
    return true;
}

/* -- SET: applying values -------------------------------------------------------------------- */

static bool differs(const struct config *config, const struct change *ch)
{
    struct buf now = {0};
    config_get(config, ch->d, &now);
    bool different = !bytes_eq(buf_bytes(&now), buf_bytes(&ch->before));
    buf_release(&now);
    return different;
}

static bool raise_file_limit(const struct config *config, struct buf *why)
{
    i64 allowed = server_ask_files(config);
    if (allowed >= config->maxclients) return true;
    buf_printf(why, "The operating system is not able to handle the specified number of clients, "
                    "try with %lld", (long long)allowed);
    return false;
}

static bool listen_anew(struct server *s, const char *name, struct buf *why)
{
    if (server_relisten(s)) return true;
    buf_append_str(why, strcmp(name, "bind") ? "Unable to listen on this port. Check server logs."
                                             : "Failed to bind to specified addresses.");
    return false;
}

static bool renew_tls(struct server *s, struct buf *why)
{
    struct buf trouble = {0};
    bool ok = server_apply_tls(s, &trouble);
    if (!ok) {
        log_line(&s->log, LOG_WARNING, "%.*s", (int)trouble.n, trouble.p);
        buf_append_str(why, "Unable to update TLS configuration. Check server logs.");
    }
    buf_release(&trouble);
    return ok;
}

/* The steps that can fail. Each is done once, for the first change that needs it. */
static bool take_steps(struct server *s, const struct changes *all, u32 *failed, struct buf *why)
{
    u32 taken = 0;
    for (u32 i = 0; i < all->n; i++) {
        const struct change *ch = &all->v[i];
        u32 steps = ch->d->flags & (CONFIG_LISTEN | CONFIG_FILES | CONFIG_TLS) & ~taken;
        if (steps && !differs(&s->config, ch)) steps &= CONFIG_TLS; /* its contents may have changed */
        if (!steps) continue;
        taken |= steps;
        *failed = i;
        if ((steps & CONFIG_FILES) && !raise_file_limit(&s->config, why)) return false;
        if ((steps & CONFIG_TLS) && !renew_tls(s, why)) return false;
        if ((steps & CONFIG_LISTEN) && !listen_anew(s, ch->name, why)) return false;
    }
    return true;
}

static void undo(struct server *s, const struct changes *all, u32 set)
{
    struct buf ignored = {0};
    while (set--) {
        bytes before = buf_bytes(&all->v[set].before);
        if (config_set(&s->config, all->v[set].d, 1, &before, &ignored)) continue;
        log_line(&s->log, LOG_WARNING, "Failed restoring failed CONFIG SET command. Error setting "
                                       "%s: %.*s", all->v[set].name, (int)ignored.n, ignored.p);
        buf_clear(&ignored);
    }
    buf_release(&ignored);
}

/* Sets all values, then does the steps; false: everything is as before, and all->v[*failed] is why. */
static bool set_all(struct server *s, const struct changes *all, u32 *failed, struct buf *why)
{
    for (u32 i = 0; i < all->n; i++) {
        bool set = config_set(&s->config, all->v[i].d, 1, &all->v[i].value, why);
        if (set && config_agrees(&s->config, why)) continue;
        *failed = i;
        undo(s, all, i + set);
        return false;
    }
    config_settle(&s->config);
    if (take_steps(s, all, failed, why)) return true;
    log_line(&s->log, LOG_WARNING, "Failed applying new configuration. Possibly related to new %s "
                                   "setting. Restoring previous settings.", all->v[*failed].name);
    undo(s, all, all->n);
    struct buf ignored = {0};
    if (!server_apply_tls(s, &ignored)) log_line(&s->log, LOG_WARNING, "%.*s", (int)ignored.n, ignored.p);
    buf_release(&ignored);
    if ((all->v[*failed].d->flags & CONFIG_LISTEN) && !server_relisten(s))
        log_line(&s->log, LOG_WARNING, "Failed listening on the previous addresses again.");
    return false;
}

/* Logs problems of which the user should know although the command succeeded. */
static void warn_of(struct server *s, const struct changes *all)
{
    u64 used = evictor_used(&s->node.evictor);
    for (u32 i = 0; i < all->n; i++) {
        const char *name = all->v[i].d->name;
        bool durable = node_engine(&s->node)->caps.durable;
        if (durable && (!strcmp(name, "maxmemory") || !strcmp(name, "appendonly")))
            config_warn(&s->config, &s->log);
        if (!durable && !strcmp(name, "maxmemory") && s->config.maxmemory &&
            (u64)s->config.maxmemory < used)
            log_line(&s->log, LOG_WARNING,
                     "WARNING: the new maxmemory value set via CONFIG SET (%lld) is smaller than "
                     "the current memory usage (%llu). This will result in key eviction and/or the "
                     "inability to accept new write commands depending on the maxmemory-policy.",
                     (long long)s->config.maxmemory, (unsigned long long)used);
    }
}

static void config_remember(const struct config *config, struct changes *all)
{
    for (u32 i = 0; i < all->n; i++) {
        buf_append_str(&all->v[i].before, ""); /* never NULL */
        config_get(config, all->v[i].d, &all->v[i].before);
    }
}

/* Keeps passwords out of the slow log, even if another argument was wrong. */
static void config_redact(struct ctx *c)
{
    for (int i = 2; i + 1 < c->argc; i += 2) {
        const struct directive *d = config_find(c->argv[i], NULL);
        if (d && (d->flags & CONFIG_SENSITIVE)) c->argv[i + 1] = BYTES_LIT("(redacted)");
    }
}

void cmd_config_set(struct ctx *c)
{
    struct server *s = c->server;
    struct buf why = {0};
    u32 failed = 0;
    if (c->argc % 2) {
        ctx_syntax_error(c);
        return;
    }
    struct changes all = {.n = (u32)(c->argc - 2) / 2};
    all.v = mem_zalloc(all.n * sizeof *all.v);
    if (!config_admit(c, &all)) goto out;
    config_remember(&s->config, &all);
    if (set_all(s, &all, &failed, &why)) {
        server_apply_config(s);
        warn_of(s, &all);
        reply_ok(c->out);
    } else {
        config_refuse(c, all.v[failed].name, buf_bytes(&why));
    }
out:
    config_redact(c);
    for (u32 i = 0; i < all.n; i++) buf_release(&all.v[i].before);
    mem_free(all.v);
    buf_release(&why);
}

/* -- the others ------------------------------------------------------------------------------- */

static bool rewrite(const struct server *s)
{
    struct buf users = {0};
    users_lines(s, &users);
    bool ok = config_rewrite(&s->config, buf_bytes(&users), false);
    buf_release(&users);
    return ok;
}

void cmd_config_rewrite(struct ctx *c)
{
    struct server *s = c->server;
    if (s->config.file.n == 0) {
        reply_error(c->out, "ERR The server is running without a config file");
    } else if (rewrite(s)) {
        log_line(&s->log, LOG_WARNING, "CONFIG REWRITE executed with success.");
        reply_ok(c->out);
    } else {
        int code = errno;
        log_line(&s->log, LOG_WARNING, "CONFIG REWRITE failed: %s", strerror(code));
        reply_errorf(c->out, "ERR Rewriting config file: %s", strerror(code));
    }
}

void cmd_config_resetstat(struct ctx *c)
{
    struct server *s = c->server;
    stats_reset(&s->stats);
    net_reset_stats(&s->net);
    memset(s->acl_log.denied, 0, sizeof s->acl_log.denied);
    s->node.lag = (struct expiry_lag){0};
    struct region *r;
    REGIONS_EACH(&s->node.regions, r) {
        r->ks.stats = (struct keyspace_stats){0};
        r->cycle.stale_perc = 0;
        r->cycle.time_cap_reached = 0;
        r->cycle.spent_us = 0;
        r->eng->reclaimed = 0;
    }
    s->node.scripts_evicted = 0;
    s->repl.full_syncs = s->repl.partial_syncs = s->repl.refused_syncs = s->client_evict.evicted = 0;
    s->persist.saves = s->persist.rewrites = s->persist.rewrite_failures = 0;
    reply_ok(c->out);
}

void cmd_config_help(struct ctx *c)
{
    static const char *const lines[] = {
        "GET <pattern>",
        "    Return parameters matching the glob-like <pattern> and their values.",
        "SET <directive> <value>",
        "    Set the configuration <directive> to <value>.",
        "RESETSTAT",
        "    Reset statistics reported by the INFO command.",
        "REWRITE",
        "    Rewrite the configuration file.",
        NULL,
    };
    ctx_help(c, lines);
}
