/* Loads the files in order, each in the format its first bytes show. */
#include "persist/aof_load.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "persist/aof_block.h"
#include "persist/aof_torn.h"

/* -- files ----------------------------------------------------------------------------------------- */

bool aof_loader_init(struct aof_loader *l, const struct aof_options *o, const char *folder,
                     const struct aof_manifest *m)
{
    const struct aof_file *file;
    struct stat st;
    char path[4096];
    bool ok = true;
    *l = (struct aof_loader){.o = o, .folder = folder, .m = m, .in.fd = -1};
    aof_replay_init(&l->replay);
    for (u32 i = 0; (file = aof_loader_file(m, i)); i++) {
        aof_loader_path(l, file, path);
        if (stat(path, &st) == 0) {
            l->total += (u64)st.st_size;
            if (file->type == AOF_BASE) l->base_size = (u64)st.st_size;
            continue;
        }
        log_line(
            o->log, LOG_WARNING,
            "The AOF file %s, which the manifest names, can't be read: %s. Nothing was "
            "loaded: bring it back, or take its line out of the manifest (with the checksum in the last "
            "line) if the data without it will do.",
            path, strerror(errno));
        ok = false;
    }
    return ok;
}

static void aof_load_close_file(struct aof_loader *l)
{
    if (l->rdb) {
        rdb_loader_release(l->rdb);
        mem_free(l->rdb);
        l->rdb = NULL;
    }
    if (l->file) aof_reader_close(&l->in);
    l->file = NULL;
}

void aof_loader_release(struct aof_loader *l)
{
    aof_load_close_file(l);
    aof_replay_release(&l->replay);
}

/* -- how a file begins ----------------------------------------------------------------------------- */

/* Whether the base is the one the manifest was written for. */
static err check_base(struct aof_loader *l)
{
    if (l->file->type != AOF_BASE || !l->m->base_known) return OK;
    if (l->in.size != l->m->base_size)
        return aof_refuse(l, 0, "it has %llu bytes, and the manifest speaks of a file of %llu",
                          (unsigned long long)l->in.size, (unsigned long long)l->m->base_size);
    u64 n = MIN(l->in.size, AOF_TAIL);
    bytes tail = aof_reader_at(&l->in, l->in.size - n, n);
    if (l->in.error || tail.n < n) return aof_refuse_read(l);
    if (aof_tail_sum(bytes_of(tail.p, n)) != l->m->base_tail)
        return aof_refuse(l, l->in.size - n,
                          "its end is not that of the file the manifest speaks of");
    return OK;
}

static err begin_ours(struct aof_loader *l, bytes head)
{
    enum aof_tag tag = l->file->type == AOF_BASE ? AOF_TAG_BASE : AOF_TAG_INCREMENT;
    u64 seq, before;
    l->form = AOF_READ_BLOCKS;
    if (head.n < AOF_LINE) {
        err e = aof_torn(l, 0);
        l->form = AOF_READ_COMMANDS; /* it is empty now, and no longer ours */
        return e;
    }
    if (!aof_line_parse(head.p, tag, &seq, &before))
        return aof_refuse_damage(l, 0, "its first line is damaged");
    if (seq != l->file->seq)
        return aof_refuse(
            l, 0, "it is number %llu, and the manifest calls it number %llu: files were swapped",
            (unsigned long long)seq, (unsigned long long)l->file->seq);
    if (tag == AOF_TAG_INCREMENT && l->before_known && before != l->before)
        return aof_refuse(
            l, 0,
            "it does not follow the increment before it: that one has lost its end, or an "
            "increment between them is missing");
    l->chain = aof_chain_start(head.p);
    l->offset = AOF_LINE;
    aof_reader_trim(&l->in, l->offset);
    return OK;
}

static i64 source_read(struct rdb_source *source, void *to, size_t n)
{
    struct aof_loader *l = (struct aof_loader *)(void *)((char *)source -
                                                         offsetof(struct aof_loader, source));
    bytes b = aof_reader_at(&l->in, l->rdb_read, n);
    if (l->in.error) return -l->in.error;
    n = MIN(n, b.n);
    if (n) memcpy(to, b.p, n);
    l->rdb_read += n;
    return (i64)n;
}

static bool aof_load_load_dead(void *arg UNUSED, u32 db UNUSED, bytes key UNUSED, i64 deadline_ms UNUSED)
{
    return true;
}

static void aof_load_note(void *arg, const char *text)
{
    struct aof_loader *l = arg;
    log_line(l->o->log, LOG_WARNING, "AOF file %s: %s", l->file->name, text);
}

/* Dead keys stay: records that follow were made while they were alive, or delete them. */
static err aof_load_begin_rdb(struct aof_loader *l, struct keyspace *ks)
{
    struct rdb_policy policy = {
        .skip_unsupported = l->o->skip_unsupported,
        .checksum = true,
        .tail = !l->m->base_known,
        .node = l->replay.region->node,
        .site = l->replay.region,
        .load_dead = aof_load_load_dead,
        .note = aof_load_note,
        .arg = l,
    };
    l->form = AOF_READ_RDB;
    l->source.read = source_read;
    l->rdb_read = 0;
    l->rdb = mem_alloc(sizeof *l->rdb);
    rdb_loader_init(l->rdb, ks, &l->source, l->in.size, &policy);
    log_line(l->o->log, LOG_NOTICE, "Reading RDB base file on AOF loading...");
    return OK;
}

static bool aof_load_begins(bytes head, const char *with)
{
    size_t n = MIN(head.n, strlen(with)); /* a torn file may be shorter */
    return n && memcmp(head.p, with, n) == 0;
}

static err begin_file(struct aof_loader *l, struct keyspace *ks)
{
    char path[4096];
    aof_loader_path(l, l->file, path);
    l->offset = l->chain = 0;
    l->want = AOF_WINDOW;
    l->form = AOF_READ_COMMANDS;
    l->replay.session.db = 0;
    l->began_us = clock_mono_us();
    if (!aof_reader_open(&l->in, path))
        return aof_refuse(l, 0, "it can't be opened: %s", strerror(errno));
    err e = check_base(l);
    bytes head = aof_reader_at(&l->in, 0, AOF_LINE);
    if (l->in.error) return aof_refuse_read(l);
    if (e || head.n == 0) return e;
    if (aof_load_begins(head, "#MI:") || aof_load_begins(head, "#MB:")) return begin_ours(l, head);
    if (aof_load_begins(head, "REDIS")) return aof_load_begin_rdb(l, ks);
    if (!aof_load_begins(head, "*") && !aof_load_begins(head, "#TS:"))
        return aof_refuse_damage(l, 0, "it begins neither as a file of Mayfly nor as one of Redis");
    aof_reader_trim(&l->in, 0);
    return OK;
}

/* -- contents -------------------------------------------------------------------------------------- */

static err read_rdb(struct aof_loader *l, u64 budget)
{
    err e = rdb_loader_step(l->rdb, budget);
    l->offset = rdb_loader_offset(l->rdb);
    if (e == ERR_SYNTAX) {
        bool skippable = strstr(l->rdb->error, "does not support");
        log_line(l->o->log, LOG_WARNING, "Bad file format reading the append only file %s: %s%s",
                 l->file->name, l->rdb->error,
                 skippable ? ". With rdb-skip-unsupported yes it is left out" : "");
    } else if (!e) { /* an old single file continues with commands */
        rdb_loader_release(l->rdb);
        mem_free(l->rdb);
        l->rdb = NULL;
        l->form = AOF_READ_COMMANDS;
        aof_reader_trim(&l->in, l->offset);
    }
    return e == ERR_AGAIN ? OK : e;
}

static err refuse_command(struct aof_loader *l, u64 offset)
{
    err e = aof_refuse(l, offset, "%s", l->replay.error);
    if (!l->replay.malformed) return e;
    log_line(l->o->log, LOG_WARNING,
             "Make a backup of the folder %s. redis-check-aof --fix %s/%s.manifest cuts "
             "off what is no command, and everything after it.",
             l->folder, l->folder, l->o->filename);
    return e;
}

/* Redis has appended to a file of ours. */
static err meet_unchecked(struct aof_loader *l)
{
    if (!l->o->load_unchecked) {
        aof_refuse(l, l->offset, "commands without checksums follow");
        log_line(
            l->o->log, LOG_WARNING,
            "If Redis has appended to this file, start with aof-load-unchecked yes, "
            "once: the file is then read on without verifying, and the next rewrite replaces it. If it has "
            "not, the file is damaged.");
        return ERR_SYNTAX;
    }
    log_line(l->o->log, LOG_WARNING,
             "AOF file %s: commands without checksums from offset %llu on are loaded, "
             "because aof-load-unchecked is enabled",
             l->file->name, (unsigned long long)l->offset);
    l->unchecked = true;
    l->form = AOF_READ_COMMANDS;
    l->chain = 0;
    return OK;
}

static err read_block(struct aof_loader *l)
{
    u64 length, chain, left = l->in.end - l->offset;
    size_t used;
    bytes b = aof_reader_at(&l->in, l->offset, AOF_LINE);
    if (l->in.error) return aof_refuse_read(l);
    if (b.n && b.p[0] == '*') return meet_unchecked(l);
    if (left < AOF_LINE)
        return aof_load_begins(b, "#MF:") ? aof_torn(l, l->offset)
                                 : aof_refuse_damage(l, l->offset, "a block's line is damaged");
    if (!aof_line_parse(b.p, AOF_TAG_BLOCK, &length, &chain))
        return aof_refuse_damage(l, l->offset, "a block's line is damaged");
    if (length > left - AOF_LINE) return aof_torn(l, l->offset);
    b = aof_reader_at(&l->in, l->offset, AOF_LINE + length);
    if (l->in.error) return aof_refuse_read(l);
    if (b.n < AOF_LINE + length)
        return aof_refuse(l, l->offset, "it became shorter while it was read");
    b = bytes_of(b.p + AOF_LINE, length);
    if (aof_chain_next(l->chain, b) != chain)
        return aof_refuse_damage(
            l, l->offset, "the checksum of the block is wrong, or another block belongs here");
    l->replay.verified = true;
    err e = aof_replay_run(&l->replay, b, &used);
    l->replay.verified = false;
    if (e == ERR_AGAIN) return aof_refuse(l, l->offset + AOF_LINE + used, "a record is not whole");
    if (e) return refuse_command(l, l->offset + AOF_LINE + used);
    l->chain = chain;
    l->offset += AOF_LINE + length;
    return OK;
}

static err read_commands(struct aof_loader *l)
{
    size_t used = 0;
    bytes b = aof_reader_at(&l->in, l->offset, l->want);
    if (l->in.error) return aof_refuse_read(l);
    err e = aof_replay_run(&l->replay, b, &used);
    l->offset += used;
    if (e == ERR_SYNTAX) return refuse_command(l, l->offset);
    if (used) l->want = AOF_WINDOW;
    else if (b.n == l->in.end - l->offset) return aof_torn(l, l->offset);
    else l->want = MAX(l->want, b.n) * 2; /* the command is longer than the window */
    return OK;
}

static err finish_file(struct aof_loader *l)
{
    bool increment = l->file->type == AOF_INCREMENT;
    if (l->in.size > l->in.end) return aof_torn(l, l->offset);
    log_line(l->o->log, LOG_NOTICE, "DB loaded from %s file %s: %.3f seconds",
             increment ? "incr" : "base", l->file->name,
             (double)(clock_mono_us() - l->began_us) / 1e6);
    if (increment) {
        l->before_known = true;
        l->before = l->chain;
        l->last_size = l->offset;
        l->appendable = l->form == AOF_READ_BLOCKS;
    } else {
        l->base_size = l->offset;
    }
    aof_load_close_file(l);
    l->next++;
    return OK;
}

static err read_some(struct aof_loader *l, u64 budget)
{
    if (l->form == AOF_READ_RDB) return read_rdb(l, budget);
    if (l->offset == l->in.end) return finish_file(l);
    return l->form == AOF_READ_BLOCKS ? read_block(l) : read_commands(l);
}

/* -- slices ---------------------------------------------------------------------------------------- */

static err load_slice(struct aof_loader *l, struct region *r, u64 budget)
{
    u64 start = l->loaded;
    while (l->loaded - start < budget) {
        u64 before = l->offset;
        err e;
        if (!l->file) {
            if (!(l->file = aof_loader_file(l->m, l->next))) return OK;
            before = 0;
            e = begin_file(l, &r->ks);
        } else {
            e = read_some(l, budget);
        }
        if (e) return e;
        l->loaded += l->offset - MIN(before, l->offset);
    }
    return ERR_AGAIN;
}

err aof_loader_step(struct aof_loader *l, struct region *r, struct server *server, u64 budget)
{
    struct keyspace *ks = &r->ks;
    struct keyspace before = *ks;
    struct journal_sink *sinks = r->journal.sinks;
    l->replay.region = r;
    l->replay.server = server;
    keyspace_begin(ks, clock_wall_ms(), EXPIRY_APPLY); /* what was alive then is alive now */
    ks->event_mask = 0;
    r->journal.sinks = NULL;
    err e = load_slice(l, r, budget);
    bool kept = region_commit(r);
    r->journal.sinks = sinks;
    ks->now_ms = before.now_ms;
    ks->dead_by_ms = before.dead_by_ms;
    keyspace_set_mode(ks, before.mode);
    ks->event_mask = before.event_mask;
    ks->dirty = before.dirty; /* loading is not a change */
    ks->stats = before.stats;
    if (!kept && e != ERR_SYNTAX) {
        log_line(l->o->log, LOG_WARNING, "Loading the AOF: the storage engine failed");
        return ERR_SYNTAX;
    }
    return e;
}
