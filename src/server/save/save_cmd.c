/* SAVE, BGSAVE, LASTSAVE, BGREWRITEAOF; DEBUG RELOAD and LOADAOF. */
#include "base/clock.h"
#include "command/commands.h"
#include "exec/region_site.h"
#include "server/observe/debug_parts.h"
#include "server/server.h"

/* Other data is being loaded, which will replace the data that is served. */
static bool is_loading_aside(struct ctx *c)
{
    if (LIKELY(!loading_aside(&c->server->persist.loading))) return false;
    reply_error(c->out, REGION_LOADING);
    return true;
}

void cmd_save(struct ctx *c)
{
    struct persistence *p = &c->server->persist;
    if (is_loading_aside(c)) return;
    if (c->server->cluster) {
        reply_error(c->out, "ERR SAVE is not allowed in cluster mode: what a majority has not confirmed yet "
                            "would be in the file. BGSAVE waits for it");
        return;
    }
    if (snapshot_active(p, JOB_SAVE)) {
        reply_error(c->out, "ERR Background save already in progress");
        return;
    }
    p->saves++;
    if (snapshot_save_now(c->server)) reply_ok(c->out);
    else reply_error(c->out, "ERR");
}

void cmd_bgsave(struct ctx *c)
{
    struct persistence *p = &c->server->persist;
    bool schedule = c->argc == 2 && bytes_is(c->argv[1], "schedule");
    if (is_loading_aside(c)) return;
    if (c->argc > 1 && !schedule) {
        ctx_syntax_error(c);
    } else if (snapshot_active(p, JOB_SAVE)) {
        reply_error(c->out, "ERR Background save already in progress");
    } else if (p->job == JOB_NONE) {
        snapshot_want(c->server, JOB_SAVE);
        reply_simple(c->out, c->may_wait ? "Background saving started" : "Background saving scheduled");
    } else if (p->stage == STAGE_ABANDON) { /* as good as none */
        p->save_next = true;
        reply_simple(c->out, "Background saving started");
    } else if (schedule) {
        p->save_scheduled = true;
        reply_simple(c->out, "Background saving scheduled");
    } else {
        reply_error(c->out, "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE "
                            "SCHEDULE in order to schedule a BGSAVE whenever possible.");
    }
}

void cmd_lastsave(struct ctx *c) { reply_int(c->out, c->server->persist.last_save_s); }

void cmd_bgrewriteaof(struct ctx *c)
{
    struct persistence *p = &c->server->persist;
    if (is_loading_aside(c)) return;
    p->rewrite_after_ms = 0; /* the client does not want to wait for the end of a back-off */
    if (c->eng->caps.durable) {
        reply_error(c->out, "ERR There is no append only file with engine rocksdb: its data is on disk, with "
                            "a write-ahead log of its own");
    } else if (snapshot_active(p, JOB_REWRITE)) {
        reply_error(c->out, "ERR Background append only file rewriting already in progress");
    } else if (p->job == JOB_NONE) {
        snapshot_want(c->server, JOB_REWRITE);
        reply_simple(c->out, c->may_wait ? "Background append only file rewriting started"
                                         : "Background append only file rewriting scheduled");
    } else {
        p->rewrite_scheduled = true;
        p->rewrite_failures = 0;
        reply_simple(c->out, "Background append only file rewriting scheduled");
    }
}

/* -- DEBUG ------------------------------------------------------------------------------------------- */

static bool cannot_load(struct ctx *c)
{
    if (c->in_script) {
        reply_error(c->out, "ERR This Redis command is not allowed from script");
        return true;
    }
    if (c->server->cluster) {
        reply_error(c->out, "ERR Not allowed in cluster mode: the other nodes would not load it");
        return true;
    }
    if (!c->server->node.loading && !loading_aside(&c->server->persist.loading)) return false;
    reply_error(c->out, REGION_LOADING);
    return true;
}

static void empty_all(struct ctx *c)
{
    region_flushing_all(c->region);
    for (u32 db = 0; db < c->eng->databases; db++) region_engine_ops(c->eng)->flush(c->eng, db);
    region_site_emptied(c->region);
    functions_flush(ctx_node(c));
}

struct reload {
    bool merge, noflush, nosave;
};

static bool parse_reload(struct ctx *c, struct reload *o)
{
    *o = (struct reload){0};
    for (int i = 2; i < c->argc; i++) {
        if (bytes_is(c->argv[i], "merge")) o->merge = true;
        else if (bytes_is(c->argv[i], "noflush")) o->noflush = true;
        else if (bytes_is(c->argv[i], "nosave")) o->nosave = true;
        else {
            reply_error(c->out, "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.");
            return false;
        }
    }
    return true;
}

/* The AOF does not contain the data of the loaded file, unless it was saved just now, so it is rewritten.
 * Dead keys are in no file, but the AOF still has them, and they would collide with new keys of the same
 * name: they are deleted first. */
void debug_reload(struct ctx *c)
{
    struct persistence *p = &c->server->persist;
    struct reload o;
    if (cannot_load(c) || !parse_reload(c, &o)) return;
    region_expire_all(c->region);
    if (!o.nosave && !snapshot_save_now(c->server)) {
        reply_error(c->out, "ERR");
        return;
    }
    region_site_reload_begin(c->region);
    if (!o.noflush) empty_all(c);
    bool ok = loading_rdb_now(c->server, o.merge);
    region_site_reload_end(c->region);
    p->dirty_saved = c->ks->dirty;
    if (p->aof_state == AOF_IS_ON && (o.nosave || o.noflush || !ok)) p->rewrite_scheduled = true;
    if (!ok) {
        reply_error(c->out, "ERR Error trying to load the RDB dump, check server logs.");
        return;
    }
    log_line(&c->server->log, LOG_WARNING, "DB reloaded by DEBUG RELOAD");
    reply_ok(c->out);
}

/* Whether there are files to load although none are written: BGREWRITEAOF made them, or they are older. */
static bool has_old_aof(struct server *s)
{
    struct aof *a;
    enum aof_found found = persistence_open_aof(s, &a);
    aof_free(a);
    return found == AOF_FILES;
}

/* Unlike in Redis, the data is not touched if there is nothing to load. */
static void load_old_aof(struct ctx *c)
{
    struct server *s = c->server;
    bool there = has_old_aof(s);
    if (there) {
        region_site_reload_begin(c->region);
        empty_all(c);
    }
    bool ok = there && loading_aof_now(s);
    region_site_reload_end(c->region);
    if (!ok) {
        reply_error(c->out, "ERR Error trying to load the AOF files, check server logs.");
        return;
    }
    log_line(&s->log, LOG_WARNING, "Append Only File loaded by DEBUG LOADAOF");
    reply_ok(c->out);
}

/* The engine's own log: after the commit of this tick, before its replies, the database is opened again. */
static void load_own_log(struct ctx *c)
{
    struct persistence *p = &c->server->persist;
    if (p->job != JOB_NONE) {
        reply_error(c->out, "ERR a snapshot is being written from the database: try again after it");
        return;
    }
    p->reopen = true;
    reply_ok(c->out);
}

void debug_loadaof(struct ctx *c)
{
    struct server *s = c->server;
    struct persistence *p = &s->persist;
    if (cannot_load(c)) return;
    if (c->eng->caps.durable && s->config.appendonly) {
        load_own_log(c);
        return;
    }
    if (p->aof_state == AOF_IS_OFF && s->config.engine == ENGINE_MEMORY) {
        load_old_aof(c);
        return;
    }
    if (p->aof_state != AOF_IS_ON) {
        reply_error(c->out, "ERR there is no append only file to load: appendonly is off, or not on yet");
        return;
    }
    /* Including what EXEC did so far. */
    if (UNLIKELY(c->region->site != NULL)) region_site_ran(c->region);
    p->flushed_seq = journal_close(&lone_region(s)->journal, s->now_ms, c->seed);
    if (!aof_flush(p->aof, clock_mono_ms())) {
        reply_error(c->out, "ERR the append only file can't be written, check server logs.");
        return;
    }
    region_site_reload_begin(c->region);
    empty_all(c);
    bool ok = loading_aof_now(s);
    region_site_reload_end(c->region);
    if (!ok) { /* as in Redis: there is no data to continue with */
        log_line(&s->log, LOG_WARNING, "DEBUG LOADAOF: the append only file can't be loaded. Exiting.");
        server_end(s, 1);
        return;
    }
    p->dirty_saved = c->ks->dirty;
    c->dirty_before = c->ks->dirty; /* nothing was changed: no record of this command */
    log_line(&s->log, LOG_WARNING, "Append Only File loaded by DEBUG LOADAOF");
    reply_ok(c->out);
}
