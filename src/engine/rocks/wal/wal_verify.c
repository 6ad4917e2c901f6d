#include "engine/rocks/wal/wal_verify.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/rocks/wal/wal_manifest.h"
#include "engine/rocks/wal/wal_synced.h"
#include "engine/rocks/wal/wal_reader.h"

#define BATCH_HEAD 12
#define LONG ((u64)64 << 20) /* bytes of logs from which on a line is logged first */
#define LLU(x) ((unsigned long long)(x))

struct walk {
    const char *dir;
    struct wal_manifest manifest;
    struct wal_synced synced;
    bool has_synced;    /* `synced` is from the last time the database was open */
    struct buf logs; /* of u64, ascending */
    u64 next;      /* the sequence number that the next record has to have; 0: any */
    u64 last_log, last_end; /* the log with the last sound record, and where that ends */
    bool last_bad; /* bad bytes follow it */
    struct wal_verdict *v;
};

static u64 log_at(const struct walk *w, size_t i) { return ((const u64 *)(const void *)w->logs.p)[i]; }
static size_t log_count(const struct walk *w) { return w->logs.n / sizeof(u64); }

static void wal_verify_path_of(const struct walk *w, u64 log, char path[4200])
{
    snprintf(path, 4200, "%s/%06llu.log", w->dir, LLU(log));
}

static u64 wal_verify_size_of(const struct walk *w, u64 log)
{
    char path[4200];
    struct stat st;
    wal_verify_path_of(w, log, path);
    return stat(path, &st) == 0 ? (u64)st.st_size : 0;
}

/* -- verdicts -------------------------------------------------------------------------------------- */

/* Everything up to the last sound record is to be used; the rest is for wal_put_aside. */
static void end_here(struct walk *w, enum wal_state state)
{
    struct wal_verdict *v = w->v;
    v->state = state;
    v->log = w->last_log;
    v->offset = w->last_end;
    v->log_bad = w->last_bad;
    buf_clear(&v->after);
    for (size_t i = 0; i < log_count(w); i++) {
        u64 log = log_at(w, i);
        if (log > w->last_log && wal_verify_size_of(w, log)) buf_append(&v->after, &log, sizeof log);
    }
    /* If not even the first sequence number is known, what of it is in tables is known by the log. */
    u64 lost = w->last_log ? w->last_log : w->manifest.first_log;
    v->tables_ahead = w->next ? w->manifest.in_tables >= w->next : w->manifest.flushed_log > lost;
}

/* Whether something after the last sound record was synced. */
static bool synced_beyond(const struct walk *w)
{
    const struct wal_synced *n = &w->synced;
    u64 needed = w->manifest.first_log;
    if (!w->has_synced) return false;
    bool sealed = w->last_log < n->sealed_log ||
                  (w->last_log == n->sealed_log && w->last_end < n->sealed_size);
    return (sealed && n->sealed_log >= needed) || (w->next && w->next <= n->sequence) ||
           (n->log >= needed && wal_verify_size_of(w, n->log) < n->size);
}

static void say_where(struct walk *w)
{
    struct buf *t = &w->v->text;
    if (!w->last_log) buf_append_str(t, "the first log is missing or empty");
    else buf_printf(t, "%06llu.log is sound up to offset %llu", LLU(w->last_log), LLU(w->last_end));
}

/* Records are missing before one of `log`. */
static bool found_gap(struct walk *w, u64 log, u64 offset, u64 sequence)
{
    struct buf *t = &w->v->text;
    bool between = log != w->last_log;
    end_here(w, between && w->has_synced && !synced_beyond(w) ? WAL_TORN : WAL_DAMAGED);
    say_where(w);
    if (w->next)
        buf_printf(
            t,
            ", but %06llu.log continues, at offset %llu, with sequence number %llu instead of %llu: what "
            "was written in between is missing",
            LLU(log), LLU(offset), LLU(sequence), LLU(w->next));
    else
        buf_printf(t, ", but %06llu.log has records: what was written before it is missing", LLU(log));
    return false;
}

/* -- one log ----------------------------------------------------------------------------------------- */

/* The first rows that were found are not the first that are needed. If a log was begun since the database
 * was opened (mayfly-synced says so), the MANIFEST names one that has been written; if not, it has only a
 * sequence number. */
static bool starts_late(const struct walk *w, u64 log, u64 sequence)
{
    if (w->last_bad) return true;
    if (w->has_synced) return w->last_log == 0 && log > w->manifest.first_log;
    return sequence > w->manifest.last_sequence + 1;
}

/* Records without rows are RocksDB's own, and may have any number. */
static bool take_record(struct walk *w, u64 log, const struct wal_reader *r)
{
    u64 sequence;
    u32 rows;
    if (!wal_batch(buf_bytes(&r->record), &sequence, &rows)) {
        end_here(w, WAL_DAMAGED);
        buf_printf(&w->v->text, "%06llu.log has a record at offset %llu that is no write batch", LLU(log),
                   LLU(r->offset));
        return false;
    }
    if (rows) {
        bool gap = w->next ? sequence > w->next : starts_late(w, log, sequence);
        if (gap) return found_gap(w, log, r->offset, sequence);
        w->next = sequence + rows;
    }
    w->last_log = log;
    w->last_end = r->end;
    w->last_bad = false;
    return true;
}

/* If nothing sound follows it, the next log shows whether anything is missing. */
static bool take_bad(struct walk *w, u64 log, struct wal_reader *r)
{
    w->last_log = log;
    w->last_end = r->offset;
    w->last_bad = true;
    if (!wal_reader_sound_behind(r)) return true;
    bool unsynced = w->has_synced && w->next && !synced_beyond(w);
    end_here(w, unsynced && wal_reader_at_hole(r) ? WAL_TORN : WAL_DAMAGED);
    buf_printf(&w->v->text, "%06llu.log has a bad record at offset %llu with sound ones behind it", LLU(log),
               LLU(r->offset));
    return false;
}

/* False: there is a verdict. */
static bool walk_log(struct walk *w, u64 log)
{
    char path[4200];
    struct wal_reader r;
    enum wal_found found = WAL_FAILED;
    wal_verify_path_of(w, log, path);
    bool opened = wal_reader_open(&r, path, log, BATCH_HEAD), more = true;
    while (opened && more && (found = wal_reader_next(&r)) == WAL_RECORD) more = take_record(w, log, &r);
    if (more && found == WAL_BAD) more = take_bad(w, log, &r);
    if (more && found == WAL_FAILED) {
        end_here(w, WAL_DAMAGED);
        buf_printf(&w->v->text, "%06llu.log can't be read: %s", LLU(log), strerror(errno));
        more = false;
    }
    if (opened) wal_reader_close(&r);
    return more;
}

/* -- all logs ------------------------------------------------------------------------------------------ */

static int by_number(const void *a, const void *b)
{
    u64 x = *(const u64 *)a, y = *(const u64 *)b;
    return x < y ? -1 : x > y;
}

/* Lists the logs that are needed; returns their size. */
static u64 list_logs(struct walk *w)
{
    u64 size = 0;
    DIR *d = opendir(w->dir);
    if (!d) return 0;
    for (struct dirent *e; (e = readdir(d));) {
        char *end;
        u64 log = strtoull(e->d_name, &end, 10);
        if (end == e->d_name || strcmp(end, ".log") != 0 || log < w->manifest.first_log) continue;
        buf_append(&w->logs, &log, sizeof log);
        size += wal_verify_size_of(w, log);
    }
    closedir(d);
    if (w->logs.n) qsort(w->logs.p, log_count(w), sizeof(u64), by_number);
    return size;
}

/* After the last record: checks that everything synced is there. */
static void judge_end(struct walk *w)
{
    if (synced_beyond(w)) {
        end_here(w, WAL_DAMAGED);
        say_where(w);
        buf_printf(&w->v->text, " and %s there, but more had been written and synced",
                   w->last_bad ? "bad from" : "ends");
    } else if (w->last_bad) {
        end_here(w, WAL_TORN);
        buf_printf(&w->v->text, "%06llu.log ends in the middle of a record, at offset %llu", LLU(w->last_log),
                   LLU(w->last_end));
    }
}

/* RocksDB may take a flipped bit for a torn end, and delete the tables that the rest of the MANIFEST
 * names. */
static void refuse_manifest(struct walk *w)
{
    w->v->state = WAL_DAMAGED;
    w->v->tables_ahead = true;
    buf_printf(&w->v->text, "MANIFEST-%06llu, the log of its tables, has a bad record at offset %llu",
               LLU(w->manifest.number), LLU(w->manifest.offset));
}

void wal_verify(const char *dir, const struct log *log, struct wal_verdict *v)
{
    struct walk w = {.dir = dir, .v = v};
    *v = (struct wal_verdict){.state = WAL_UNKNOWN};
    if (!wal_manifest_read(dir, &w.manifest)) {
        if (w.manifest.damaged) refuse_manifest(&w);
        else buf_append_str(&v->text, "its MANIFEST has something that this version does not know");
        return;
    }
    v->state = WAL_SOUND;
    w.has_synced = wal_synced_read(dir, &w.synced) && w.synced.manifest == w.manifest.number;
    if (w.has_synced && w.synced.first_log >= w.manifest.first_log) w.next = w.synced.before + 1;
    u64 size = list_logs(&w);
    if (size > LONG && log) log_line(log, LOG_NOTICE, "Verifying RocksDB's logs, %llu MB", LLU(size >> 20));
    bool whole = true;
    for (size_t i = 0; i < log_count(&w) && whole; i++) whole = walk_log(&w, log_at(&w, i));
    if (whole) judge_end(&w);
    buf_release(&w.logs);
}

void wal_verdict_release(struct wal_verdict *v)
{
    buf_release(&v->text);
    buf_release(&v->after);
}
