/* A folder of its own, a region that appends to an AOF in it, and another that loads it. */
#ifndef MAYFLY_TESTS_UNIT_AOF_HELPERS_H
#define MAYFLY_TESTS_UNIT_AOF_HELPERS_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../exec/dataset.h"
#include "../exec/harness.h"
#include "persist/aof.h"
#include "persist/disk_file.h"
#include "persist/saver.h"

#define FOLDER "appendonlydir"
#define FILENAME "appendonly.aof"

/* -- folders and files --------------------------------------------------------------------------- */

struct aof_folder {
    char dir[64];
    char log_path[96];
    struct log log;
};

static inline void aof_folder_open(struct aof_folder *p)
{
    bool memory = access("/dev/shm", W_OK) == 0; /* syncs cost nothing there */
    snprintf(p->dir, sizeof p->dir, "%s/mayfly-aof-XXXXXX", memory ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->log_path, sizeof p->log_path, "%s/log", p->dir);
    p->log = (struct log){.level = LOG_NOTICE, .path = p->log_path};
}

static inline void aof_folder_close(struct aof_folder *p)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", p->dir);
    assert_int_equal(system(command), 0);
}

static inline const char *path_in(const struct aof_folder *p, const char *name, char path[256])
{
    snprintf(path, 256, "%s/" FOLDER "/%s", p->dir, name);
    return path;
}

static inline bool read_file(const char *path, struct buf *to)
{
    FILE *f = fopen(path, "r");
    size_t n;
    buf_clear(to);
    if (!f) return false;
    while ((n = fread(buf_reserve(to, 65536), 1, 65536, f)) > 0) to->n += n;
    fclose(f);
    return true;
}

static inline void write_file(const char *path, bytes content)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    if (content.n) assert_int_equal(fwrite(content.p, 1, content.n, f), content.n);
    assert_int_equal(fclose(f), 0);
}

static inline u64 size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (u64)st.st_size : UINT64_MAX;
}

/* Whether the log has said so since it was last asked. */
static inline bool logged(struct aof_folder *p, const char *text)
{
    struct buf b = {0};
    bool found = read_file(p->log_path, &b);
    buf_append_char(&b, '\0');
    found = found && strstr(b.p, text);
    if (!found) fprintf(stderr, "not in the log: %s\n%s", text, b.p);
    unlink(p->log_path);
    buf_release(&b);
    return found;
}

/* -- writing --------------------------------------------------------------------------------------- */

static inline struct aof_options options_in(const struct aof_folder *p)
{
    return (struct aof_options){.dir = p->dir,
                                .dirname = FOLDER,
                                .filename = FILENAME,
                                .log = &p->log,
                                .sync = AOF_SYNC_NO,
                                .load_truncated = true};
}

/* All at once; the region's data is then what the files hold. */
static inline err load_into(struct aof *a, struct region *r, u64 budget)
{
    err e;
    do e = aof_load_step(a, r, NULL, budget);
    while (e == ERR_AGAIN);
    keyspace_begin(&r->ks, T0, r->mode);
    return e;
}

/* A world that appends, after it has loaded what is there. */
struct writer {
    struct world w;
    struct aof *a;
};

static inline void writer_open(struct writer *wr, const struct aof_options *o)
{
    world_open(&wr->w);
    if (aof_open(&wr->a, o) == AOF_FILES)
        assert_int_equal(load_into(wr->a, &wr->w.region, 1000), OK);
    assert_true(aof_start(wr->a, &wr->w.region.journal));
}

static inline void writer_close(struct writer *wr)
{
    aof_stop(wr->a);
    aof_free(wr->a);
    world_close(&wr->w);
}

/* A tick: commands, then the flush. */
static inline bool tick(struct writer *wr, const char *commands)
{
    run_all(&wr->w, commands);
    return aof_flush(wr->a, now_of(&wr->w));
}

/* SET of a value so long that its record goes straight into the file. */
#define LONG_VALUE 17000000u
static inline void set_long(struct world *w, const char *key)
{
    char *value = mem_alloc(LONG_VALUE);
    memset(value, 'v', LONG_VALUE);
    bytes argv[] = {BYTES_LIT("set"), bytes_str(key), bytes_of(value, LONG_VALUE)};
    run_argv(w, 3, argv);
    mem_free(value);
}

/* The base, as the server writes it. */
static inline bool write_base(struct aof *a, struct region *r, bool rdb)
{
    char temp[4096], path[4096];
    struct disk_file file;
    struct aof_base_sink framed;
    struct saver_options o = {.checksum = true, .aof_base = true, .commands = !rdb};
    aof_rewrite_paths(a, rdb, temp, path);
    if (!disk_file_open(&file, NULL, temp, path)) return false;
    aof_base_sink_init(&framed, a, &file.sink);
    bool ok = saver_save_now(&r->ks, &o, rdb ? &file.sink : &framed.sink);
    if (ok) disk_file_finish(&file, NULL, NULL);
    else disk_file_abandon(&file, NULL, NULL);
    return ok && size_of(path) != UINT64_MAX;
}

static inline bool rewrite(struct writer *wr, bool rdb)
{
    return aof_rewrite_begin(wr->a) && write_base(wr->a, &wr->w.region, rdb) &&
           aof_rewrite_end(wr->a, rdb, 0);
}

/* -- reading --------------------------------------------------------------------------------------- */

static inline void dump_at(struct region *r, i64 now_ms, struct buf *out)
{
    dataset_dump(r->eng, now_ms, out);
    keyspace_begin(&r->ks, T0, r->mode);
}

static inline void dump_all(struct region *r, struct buf *out) { dump_at(r, 0, out); }

/* Loads into an empty region and dumps what it then holds; at time 0 dead keys, too. */
static inline err load_dump_at(const struct aof_options *o, u64 budget, i64 now_ms, struct buf *out)
{
    struct world w;
    struct aof *a;
    world_open(&w);
    enum aof_found found = aof_open(&a, o);
    err e = found == AOF_NONE     ? OK
            : found == AOF_BROKEN ? ERR_SYNTAX
                                  : load_into(a, &w.region, budget);
    dump_at(&w.region, now_ms, out);
    aof_free(a);
    world_close(&w);
    return e;
}

static inline err load_dump(const struct aof_options *o, u64 budget, struct buf *out)
{
    return load_dump_at(o, budget, 0, out);
}

static inline bool same(const struct buf *a, const struct buf *b)
{
    return bytes_eq(buf_bytes(a), buf_bytes(b));
}

/* What the files hold is what the writer has. */
static inline void check_files(struct writer *wr, const struct aof_options *o)
{
    struct buf want = {0}, got = {0};
    dump_all(&wr->w.region, &want);
    assert_int_equal(load_dump(o, 1000, &got), OK);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.p, want.p, want.n);
    buf_release(&want);
    buf_release(&got);
}

#endif
