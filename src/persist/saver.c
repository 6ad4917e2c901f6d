/* Writing a snapshot to a file.
 *
 * The main output holds one key after the other. While a key is partly written in RDB, another key that is
 * about to change can't go there: it is written to `aside`, which is appended when the current key is
 * complete. That is the only memory that can grow meanwhile. Commands are never split, so a base of commands
 * takes a key written ahead between two of them, and the database is selected again.
 *
 * A key is identified by its database and name at the moment of the snapshot, kept in `last`: keep() may be
 * called with the key handed out last, in progress or complete, and must not write it twice. */
#include "persist/saver.h"

#include "exec/region_site.h"
#include "persist/command_save.h"

#define KEY_COST 128                /* charged besides the value: finding a key misses the caches */
#define COMPRESS_SLICE (16u << 10)  /* strings up to this size are compressed: 65 µs, and a list's nodes */
#define COMPRESS_NOW (64u << 20)    /* the same for a save that blocks anyway */
#define ASIDE_KEEP (1u << 20)       /* a larger buffer is freed */
#define SCAN_COUNT 100
#define COMPANION_PIECE (64u << 10)
#define NO_DB UINT32_MAX

/* A value in progress, in one format or the other. It must not move. */
struct value {
    bool commands, begun;
    bool only_companion;   /* the value is written, or there is none: its site's metadata is next */
    union {
        struct rdb_save rdb;
        struct command_save command;
    };
    bool site;             /* there may be a companion */
    struct rdb_out *out;
    struct engine *eng;
    struct key_ref *ref;
    struct buf from;       /* where its companion continues */
};

/* An output, and the database selected in it. */
struct saver_output {
    struct rdb_out out;
    u32 db;
};

struct db_sizes {
    u64 keys, with_deadline; /* at the moment of the snapshot */
    bool told;               /* written to the file */
};

struct saver {
    struct keyspace *ks; /* that is being saved: parts[part] */
    struct keyspace **parts;
    u32 parts_n, part;
    u32 opened; /* the snapshots of the parts from `part` up to here are open */
    struct saver_options o;
    i64 dead_by_ms;          /* the moment of the snapshot, or 0: nothing counts as dead */
    struct saver_output main, aside;
    struct db_sizes *sizes;  /* one per database */
    struct saver_progress progress;

    bool open; /* the end was not written yet */
    bool over;
    struct key_ref ref;      /* handed out last, while in progress … */
    struct engine *ref_of;
    struct value value;      /* … and its value: begun */
    struct buf last;         /* its name; last_db NO_DB: none */
    u32 last_db;
    enum value_type last_type; /* TYPE_NONE: it is a companion that stays */
};

/* -- one key ------------------------------------------------------------------------------------- */

static struct rdb_job job_for(const struct saver *s, struct saver_output *to, struct engine *eng)
{
    return (struct rdb_job){.out = &to->out, .eng = eng, .now_ms = s->dead_by_ms, .ttls = RDB_TTLS_AUX};
}

static void saver_select_db(struct saver *s, struct saver_output *to, u32 db)
{
    if (to->db == db) return;
    to->db = db;
    if (s->o.commands) {
        command_save_select(&to->out, db);
        return;
    }
    struct db_sizes *sizes = &s->sizes[db];
    rdb_file_select(&to->out, db);
    if (!sizes->told) rdb_file_sizes(&to->out, sizes->keys, sizes->with_deadline);
    sizes->told = true;
}

static struct rdb_key_use saver_use_of(const struct saver *s, struct engine *eng, struct key_ref *ref)
{
    struct rdb_key_use use = {-1, -1};
    u32 policy = s->ks->policy;
    if (!s->o.keep_use || !(policy & (EVICT_VOLATILE_LFU | EVICT_VOLATILE_LRU))) return use;
    u32 bits = eng->ops->access(eng, ref);
    if (policy & EVICT_VOLATILE_LFU) use.frequency = access_frequency(s->ks, bits);
    else use.idle_s = (i64)(access_idle_ms(s->ks, bits) / 1000);
    return use;
}

/* -- metadata of a site, which is in files as exec/site_log.h says --------------------------------- */

static void saver_put_log(struct rdb_out *out, bool commands, struct site_log *log)
{
    bytes words[] = {BYTES_LIT("ECHO"), buf_bytes(&log->ops)};
    if (log->ops.n && commands) command_put(out, 2, words, 0, (bytes){0});
    else if (log->ops.n) rdb_file_aux(out, RDB_AUX_SITE, words[1]);
    site_log_release(log);
}

/* One that stays is handed out by itself. */
static bool saver_has_companion(struct engine *eng, struct key_ref *ref)
{
    const struct companion_ops *ops = &eng->ops->companion;
    bytes head;
    return ops->head(eng, ref, &head) && (ref->type == TYPE_NONE || !ops->kept(eng, ref));
}

/* A piece of it; returns its size. */
static i64 value_put_companion(struct value *v)
{
    struct site_log log = {0};
    bool more = site_log_companion(&log, v->eng, v->ref, &v->from, COMPANION_PIECE);
    i64 n = (i64)log.ops.n;
    saver_put_log(v->out, v->commands, &log);
    if (more) return n;
    v->begun = false;
    buf_release(&v->from);
    return n;
}

static void value_begin_companion(struct saver *s, struct value *v, struct saver_output *to,
                                  struct engine *eng, struct key_ref *ref)
{
    v->begun = v->only_companion = true;
    v->commands = s->o.commands;
    v->site = s->ks->eng->site != NULL;
    v->from = (struct buf){0};
    v->out = &to->out;
    v->eng = eng;
    v->ref = ref;
}

static void value_begin(struct saver *s, struct value *v, struct saver_output *to, struct engine *eng,
                        struct key_ref *ref)
{
    struct rdb_job job = job_for(s, to, eng);
    value_begin_companion(s, v, to, eng, ref);
    v->only_companion = false;
    saver_select_db(s, to, ref->db);
    if (v->commands) command_save_begin(&v->command, &job, ref);
    else rdb_file_key(&v->rdb, &job, ref, saver_use_of(s, eng, ref));
}

static void value_release(struct value *v)
{
    if (!v->begun) return;
    v->begun = false;
    buf_release(&v->from);
    if (v->only_companion) return;
    if (v->commands) command_save_release(&v->command);
    else rdb_save_release(&v->rdb);
}

/* Returns what remains of the budget; `begun` says whether the value is still in progress. */
static i64 value_step(struct value *v, u64 budget)
{
    i64 left = (i64)MIN(budget, (u64)INT64_MAX);
    if (!v->only_companion) {
        bool done = v->commands ? command_save_step(&v->command, budget) : rdb_save_step(&v->rdb, budget);
        left = v->commands ? v->command.budget : v->rdb.budget;
        if (!done) return left;
        bool companion = UNLIKELY(v->site) && !v->out->failed && saver_has_companion(v->eng, v->ref);
        value_release(v);
        v->begun = v->only_companion = companion;
    }
    while (v->begun && left > 0) left -= value_put_companion(v);
    return left;
}

/* Errors of the engine while the saver reads are the saver's: no command may fail because of them. */
static bool failure_hidden(struct engine *eng)
{
    bool before = eng->failed;
    eng->failed = false;
    return before;
}

static void failure_restored(struct saver *s, struct engine *eng, bool before)
{
    if (eng->failed) s->main.out.failed = true;
    eng->failed = before;
}

/* Writes a key at once, if it is to be saved. */
static void write_whole(struct saver *s, struct saver_output *to, struct engine *eng, struct key_ref *ref)
{
    struct rdb_job job = job_for(s, to, eng);
    struct value v;
    bool before = failure_hidden(eng);
    if (ref->type == TYPE_NONE) value_begin_companion(s, &v, to, eng, ref);
    else s->progress.keys++;
    bool wanted = ref->type == TYPE_NONE || rdb_file_wants(&job, ref);
    if (wanted && ref->type != TYPE_NONE) value_begin(s, &v, to, eng, ref);
    if (wanted) value_step(&v, RDB_SAVE_ALL);
    if (to->out.failed) s->main.out.failed = true;
    failure_restored(s, eng, before);
}

/* -- the key under way ------------------------------------------------------------------------- */

static void join_aside(struct saver *s)
{
    struct buf *aside = &s->aside.out.buf;
    if (aside->n == 0) return;
    rdb_put_raw(&s->main.out, buf_bytes(aside));
    s->main.db = s->aside.db;
    s->aside.db = NO_DB;
    buf_clear(aside);
    if (aside->cap > ASIDE_KEEP) buf_release(aside);
}

/* Continues the current key. Returns what remains of the budget. */
static i64 saver_continue(struct saver *s, u64 budget)
{
    bool before = failure_hidden(s->ref_of);
    if (s->o.commands) saver_select_db(s, &s->main, s->ref.db);
    i64 left = value_step(&s->value, budget);
    failure_restored(s, s->ref_of, before);
    if (!s->value.begun) join_aside(s);
    return left;
}

static i64 saver_dead_by(const struct saver *s)
{
    return s->o.with_dead ? 0 : s->o.dead_by_ms ? s->o.dead_by_ms : s->ks->now_ms;
}

/* False: the last part is done. */
static bool saver_next_part(struct saver *s)
{
    if (s->part + 1 == s->parts_n) return false;
    s->ks->eng->ops->snapshot.end(s->ks->eng);
    s->ks = s->parts[++s->part];
    s->dead_by_ms = saver_dead_by(s);
    return true;
}

static void begin_taken(struct saver *s)
{
    struct rdb_job job = job_for(s, &s->main, s->ref_of);
    bool before = failure_hidden(s->ref_of);
    if (s->ref.type == TYPE_NONE) value_begin_companion(s, &s->value, &s->main, s->ref_of, &s->ref);
    else if (rdb_file_wants(&job, &s->ref)) value_begin(s, &s->value, &s->main, s->ref_of, &s->ref);
    failure_restored(s, s->ref_of, before);
}

/* False: no more keys. */
static bool saver_take_next(struct saver *s)
{
    struct engine *eng = s->ks->eng;
    bool before = failure_hidden(eng);
    s->ref_of = eng;
    s->last_db = NO_DB;
    bool got = eng->ops->snapshot.next(eng, &s->ref, &s->ref_of);
    failure_restored(s, eng, before);
    if (s->main.out.failed) return false;
    if (!got) return saver_next_part(s);
    bool companion = s->ref.type == TYPE_NONE;
    if (companion && (!s->ref.entry || !eng->site)) return true; /* none yet; or what files don't have */
    s->progress.keys += !companion;
    s->last_db = s->ref.db;
    s->last_type = s->ref.type;
    buf_clear(&s->last);
    buf_append_bytes(&s->last, s->ref.key);
    begin_taken(s);
    return true;
}

/* Called when the engine is about to change a key of the snapshot. */
static void saver_keep(void *arg, struct key_ref *ref)
{
    struct saver *s = arg;
    bool companion = ref->type == TYPE_NONE;
    if (s->over || s->main.out.failed || (companion && !s->ks->eng->site)) return;
    bool same_kind = companion == (s->last_type == TYPE_NONE);
    if (same_kind && ref->db == s->last_db && bytes_eq(ref->key, buf_bytes(&s->last))) {
        if (s->value.begun) saver_continue(s, RDB_SAVE_ALL);
        return;
    }
    s->progress.ahead++;
    write_whole(s, s->value.begun && !s->o.commands ? &s->aside : &s->main, s->ks->eng, ref);
}

/* -- the whole --------------------------------------------------------------------------------- */

static void note_sizes(struct saver *s)
{
    u32 databases = s->ks->eng->databases;
    s->sizes = mem_zalloc(MAX(databases, 1u) * sizeof *s->sizes);
    for (u32 i = 0; i < s->parts_n; i++) {
        struct engine *eng = s->parts[i]->eng;
        for (u32 db = 0; db < databases; db++) {
            s->sizes[db].keys += eng->ops->count(eng, db);
            s->sizes[db].with_deadline += eng->ops->expires(eng, db);
            s->progress.keys_total += eng->ops->count(eng, db);
        }
    }
}

static void saver_output_init(struct saver_output *t, struct rdb_sink *sink, const struct saver_options *o,
                        size_t compress_max)
{
    rdb_out_init(&t->out, sink, o->compress ? compress_max : 0);
    t->out.checksum = sink && o->checksum && !o->commands; /* `aside` is counted when it is appended */
    t->db = NO_DB;
}

static void saver_init(struct saver *s, struct keyspace *const *all, u32 n, const struct saver_options *o,
                       struct rdb_sink *sink, size_t compress_max)
{
    *s = (struct saver){.ks = all[0], .parts_n = n, .o = *o, .last_db = NO_DB};
    s->parts = mem_alloc(n * sizeof(struct keyspace *));
    for (u32 i = 0; i < n; i++) s->parts[i] = all[i];
    s->dead_by_ms = saver_dead_by(s);
    saver_output_init(&s->main, sink, o, compress_max);
    saver_output_init(&s->aside, NULL, o, compress_max);
    note_sizes(s);
}

static void saver_release(struct saver *s)
{
    rdb_out_release(&s->main.out);
    rdb_out_release(&s->aside.out);
    value_release(&s->value);
    buf_release(&s->last);
    mem_free(s->sizes);
    mem_free(s->parts);
}

static void saver_put_state(struct saver *s)
{
    struct site_log log = {0};
    if (LIKELY(!s->ks->eng->site)) return;
    region_site_put_state(s->ks->eng->site->region, &log);
    saver_put_log(&s->main.out, s->o.commands, &log);
}

/* The header fields Redis writes, in its order. */
static void write_beginning(struct saver *s)
{
    struct rdb_out *out = &s->main.out;
    struct rdb_job job = job_for(s, &s->main, s->ks->eng);
    const struct mem_meter process = {0};
    if (s->o.commands) {
        command_save_functions(out, s->o.functions);
        saver_put_state(s);
        return;
    }
    rdb_file_begin(&job);
    if (s->o.redis_version) rdb_file_aux(out, "redis-ver", bytes_str(s->o.redis_version));
    rdb_file_aux_int(out, "redis-bits", 64);
    rdb_file_aux_int(out, "ctime", s->ks->now_ms / 1000);
    rdb_file_aux_int(out, "used-mem", (i64)mem_used(&process));
    if (s->o.aux) s->o.aux(s->o.arg, out);
    rdb_file_aux_int(out, "aof-base", s->o.aof_base);
    if (s->o.mayfly_version) rdb_file_aux(out, "mayfly-ver", bytes_str(s->o.mayfly_version));
    saver_put_state(s);
    functions_save(s->o.functions, out);
}

static void write_end(struct saver *s)
{
    if (s->main.out.failed) return;
    if (s->o.commands) rdb_out_flush(&s->main.out);
    else rdb_file_end(&s->main.out);
}

/* From here on the engines no longer call keep(). */
static void close_snapshot(struct saver *s)
{
    for (u32 i = s->part; i < s->opened; i++) s->parts[i]->eng->ops->snapshot.end(s->parts[i]->eng);
    s->opened = 0;
    s->open = false;
}

static void saver_end(struct saver *s)
{
    if (!s->open) return;
    close_snapshot(s);
    write_end(s);
}

static bool open_part(struct saver *s, struct engine *eng)
{
    const struct snapshot_ops *snapshot = &eng->ops->snapshot;
    if (s->o.stored) return snapshot->begin_stored && snapshot->begin_stored(eng);
    return snapshot->begin && snapshot->begin(eng, saver_keep, s);
}

struct saver *saver_begin_all(struct keyspace *const *all, u32 n, const struct saver_options *o,
                              struct rdb_sink *sink)
{
    struct saver *s = mem_alloc(sizeof *s);
    saver_init(s, all, n, o, sink, COMPRESS_SLICE);
    while (s->opened < n && open_part(s, all[s->opened]->eng)) s->opened++;
    s->open = s->opened == n;
    if (!s->open) {
        saver_free(s);
        return NULL;
    }
    write_beginning(s);
    return s;
}

struct saver *saver_begin(struct keyspace *ks, const struct saver_options *o, struct rdb_sink *sink)
{
    return saver_begin_all(&ks, 1, o, sink);
}

bool saver_step(struct saver *s, u64 budget)
{
    i64 left = (i64)MIN(budget, (u64)INT64_MAX);
    while (!s->over && left > 0) {
        if (s->value.begun) {
            left = saver_continue(s, (u64)left);
        } else {
            left -= KEY_COST;
            if (!saver_take_next(s)) s->over = true;
        }
        s->over |= s->main.out.failed;
    }
    if (s->over) saver_end(s);
    return s->over;
}

bool saver_failed(const struct saver *s) { return s->main.out.failed; }

struct saver_progress saver_progress(const struct saver *s)
{
    struct saver_progress p = s->progress;
    p.bytes = s->main.out.written;
    p.waiting = s->aside.out.buf.n;
    return p;
}

void saver_free(struct saver *s)
{
    if (!s) return;
    close_snapshot(s);
    saver_release(s);
    mem_free(s);
}

/* -- at once ----------------------------------------------------------------------------------- */

static void write_scanned(void *arg, struct key_ref *ref)
{
    struct saver *s = arg;
    if (!s->main.out.failed) write_whole(s, &s->main, s->ks->eng, ref);
}

/* Its key, if it is there, is written by itself. */
static void saver_write_kept(void *arg, struct key_ref *ref)
{
    struct saver *s = arg;
    struct value v;
    if (s->main.out.failed) return;
    value_begin_companion(s, &v, &s->main, s->ks->eng, ref);
    value_step(&v, RDB_SAVE_ALL);
}

static void write_all_kept(struct saver *s, u32 db)
{
    struct engine *eng = s->ks->eng;
    struct buf place = {0};
    while (eng->ops->companion.each_kept(eng, db, &place, SCAN_COUNT, saver_write_kept, s)) {}
    buf_release(&place);
}

bool saver_save_now(struct keyspace *ks, const struct saver_options *o, struct rdb_sink *sink)
{
    struct engine *eng = ks->eng;
    struct saver s;
    saver_init(&s, &ks, 1, o, sink, COMPRESS_NOW);
    write_beginning(&s);
    for (u32 db = 0; db < eng->databases && !s.main.out.failed; db++) {
        u64 cursor = 0;
        bool before = failure_hidden(eng);
        do cursor = eng->ops->scan(eng, db, cursor, SCAN_COUNT, write_scanned, &s);
        while (cursor && !s.main.out.failed);
        if (UNLIKELY(eng->site != NULL)) write_all_kept(&s, db);
        failure_restored(&s, eng, before);
    }
    write_end(&s);
    bool ok = !s.main.out.failed;
    saver_release(&s);
    return ok;
}
