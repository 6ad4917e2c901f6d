#include "server/import/import.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/num.h"
#include "cluster/cluster.h"
#include "engine/memory/memory.h"
#include "persist/rdb_file.h"
#include "server/import/target.h"

#define FILES_MAX 1000
#define DATABASES 1024 /* that a file may have */
#define SLICE_BYTES (256u << 10)
#define TELL_EVERY_MS 1000
#define AUX_WITHIN 262144 /* bytes at the beginning of a file in which its fields are */

struct import {
    const char *files[FILES_MAX];
    u32 files_n;
    const char *to, *user;
    bool replace;
    u32 db;             /* of the files */
    u64 from;           /* offset in the first file */
    bool partial;
    u64 rate;           /* bytes of files per second at most; 0: any number */

    struct target target;
    struct target_batch batch;
    u64 keys, left_out; /* imported; of other databases */
    u64 libraries;
    u32 backups;        /* files that say which slots they have … */
    u16 file_of[KEY_SLOTS]; /* … and the file, counted from 1, that a slot's keys are taken from; 0: none */
    i64 started_ms, told_ms;

    /* of the current file */
    const char *path;
    u32 number;         /* counted from 1 */
    struct rdb_source source; /* reads `fd` */
    int fd;
    u64 size;
    struct keyspace ks;
    struct journal journal;
    struct rdb_loader loader;
};

/* -- the command line -------------------------------------------------------------------------- */

static const char import_usage[] =
    "Usage: mayfly-server --import-rdb FILE [FILE …] --to HOST:PORT [options]\n"
    "\n"
    "Loads RDB files into a cluster that runs (HOST:PORT is any of its nodes), or into a lone server.\n"
    "Keys that are there already stay as they are.\n"
    "\n"
    "  --replace      … or are replaced\n"
    "  --partial      import backups of a cluster although none of the files has some of the slots\n"
    "  --db N         import this database of the files, in place of 0; it becomes database 0\n"
    "  --from OFFSET  continue an import that was interrupted, at the offset it printed last\n"
    "  --rate BYTES   read so many bytes per second at most, as 10mb\n"
    "  --user NAME    log in as this user; the password is in the environment variable REDISCLI_AUTH\n";

static bool import_number(const char *text, u64 max, u64 *out)
{
    i64 n;
    if (!text || !num_parse_i64(bytes_str(text), &n) || n < 0 || (u64)n > max) return false;
    *out = (u64)n;
    return true;
}

static bool read_files(struct import *im, char **argv, int argc, int *at)
{
    while (*at + 1 < argc && strncmp(argv[*at + 1], "--", 2) != 0 && im->files_n < FILES_MAX)
        im->files[im->files_n++] = argv[++*at];
    return im->files_n > 0;
}

static bool import_options(struct import *im, int argc, char **argv)
{
    u64 db = 0;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        bool ok = true;
        if (strcmp(word, "--import-rdb") == 0) ok = read_files(im, argv, argc, &i);
        else if (strcmp(word, "--replace") == 0) im->replace = true;
        else if (strcmp(word, "--partial") == 0) im->partial = true;
        else if (strcmp(word, "--to") == 0 && next) im->to = argv[++i];
        else if (strcmp(word, "--user") == 0 && next) im->user = argv[++i];
        else if (strcmp(word, "--db") == 0) ok = import_number(argv[++i], DATABASES - 1, &db);
        else if (strcmp(word, "--from") == 0) ok = import_number(argv[++i], INT64_MAX, &im->from);
        else if (strcmp(word, "--rate") == 0) ok = next && num_parse_memory(bytes_str(argv[++i]), &im->rate);
        else ok = false;
        if (!ok) {
            fprintf(stderr, "mayfly-server: %s: what is that to mean here?\n%s", word, import_usage);
            return false;
        }
    }
    im->db = (u32)db;
    if (im->files_n && im->to) return true;
    fputs(import_usage, stderr);
    return false;
}

/* -- from a file into the batch ---------------------------------------------------------------- */

static i64 import_read(struct rdb_source *source, void *to, size_t n)
{
    struct import *im = (struct import *)(void *)((char *)source - offsetof(struct import, source));
    ssize_t got;
    do got = read(im->fd, to, n);
    while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

static void import_note(void *arg, const char *text)
{
    struct import *im = arg;
    fprintf(stderr, "%s: %s\n", im->path, text);
}

/* Nodes of Mayfly tell each other, and a second load then finds it there; those of Redis do not. */
static void import_library(void *arg, bytes code)
{
    struct import *im = arg;
    u16 slots[TARGET_LEADERS_MAX];
    bytes argv[] = {BYTES_LIT("FUNCTION"), BYTES_LIT("LOAD"), BYTES_LIT("REPLACE"), code};
    u32 leaders = target_leaders(&im->target, slots);
    if (!im->replace) argv[2] = code;
    for (u32 i = 0; i < leaders; i++)
        batch_add(&im->batch, slots[i], im->replace ? 4 : 3, argv, (bytes){0});
    im->libraries++;
}

/* The field deadlines of a hash may come after it: the last key of a slice is sent with the next one. */
static bool is_unfinished(const struct import *im, const struct key_ref *ref)
{
    const struct rdb_loader *l = &im->loader;
    return !l->done && l->last_kept && l->db == ref->db && bytes_eq(buf_bytes(&l->key), ref->key);
}

static void import_key(void *arg, struct key_ref *ref)
{
    struct import *im = arg;
    struct rdb_out payload;
    char digits[NUM_I64_LEN];
    if (is_unfinished(im, ref)) return;
    rdb_dump(&im->ks, ref, &payload);
    bytes deadline = bytes_of(digits, num_print_i64(digits, ref->deadline_ms));
    bytes argv[6] = {BYTES_LIT("RESTORE"), ref->key, deadline, buf_bytes(&payload.buf), BYTES_LIT("ABSTTL"),
                     BYTES_LIT("REPLACE")};
    u16 slot = key_slot(ref->key);
    batch_add(&im->batch, slot, im->replace ? 6 : 5, argv, ref->key);
    rdb_out_release(&payload);
    if (im->file_of[slot] && im->file_of[slot] != im->number) batch_cancel(&im->batch);
    else im->keys++;
}

static void drop_batch(struct import *im)
{
    struct engine *e = im->ks.eng;
    for (u32 i = 0; i < im->batch.count; i++) {
        const struct target_command *c = &im->batch.commands[i];
        struct key_ref ref;
        bytes key = bytes_of(im->batch.text.p + c->key_at, c->key_n);
        if (e->ops->find(e, im->db, key, &ref)) e->ops->drop(e, &ref);
    }
    while (e->ops->reclaim(e, UINT32_MAX)) {}
    batch_clear(&im->batch);
}

static void drop_other_databases(struct import *im)
{
    struct engine *e = im->ks.eng;
    for (u32 db = 0; db < DATABASES; db++) {
        if (db == im->db || !e->ops->count(e, db)) continue;
        im->left_out += e->ops->count(e, db);
        e->ops->flush(e, db);
        if (db == im->loader.db) im->loader.last_kept = false; /* field deadlines may follow it */
    }
}

static void tell_import(struct import *im, bool last)
{
    i64 now_ms = clock_mono_ms();
    if (!last && now_ms - im->told_ms < TELL_EVERY_MS) return;
    im->told_ms = now_ms;
    u64 offset = rdb_loader_offset(&im->loader);
    fprintf(stderr, "%s: %.0f%%, %llu keys, %.0f keys/s; to continue from here: --from %llu\n", im->path,
            100.0 * (double)offset / (double)MAX(im->size, 1u), (unsigned long long)im->keys,
            (double)im->keys / ((double)MAX(now_ms - im->started_ms, 1) / 1000), (unsigned long long)offset);
}

/* What it was slower than the rate so far is not made up for by being faster later. */
static void import_wait(struct import *im, u64 sent, i64 since_ms)
{
    i64 took_ms = clock_mono_ms() - since_ms, due_ms = im->rate ? (i64)(sent * 1000 / im->rate) : 0;
    if (due_ms > took_ms) usleep((useconds_t)(due_ms - took_ms) * 1000);
}

/* Slices end at the same offsets whenever a file is read: what came before `from` has arrived already. */
static bool send_slice(struct import *im, u64 read, i64 since_ms)
{
    struct engine *e = im->ks.eng;
    u64 cursor = 0, keys = im->keys;
    do cursor = e->ops->scan(e, im->db, cursor, 1000, import_key, im);
    while (cursor);
    if (rdb_loader_offset(&im->loader) > im->from) {
        if (!target_send(&im->target, &im->batch)) return false;
        import_wait(im, read, since_ms);
    } else {
        im->keys = keys;
    }
    drop_batch(im);
    drop_other_databases(im);
    return true;
}

/* -- files -------------------------------------------------------------------------------------- */

static bool open_file(struct import *im, const struct rdb_policy *policy)
{
    struct stat st;
    im->fd = open(im->path, O_RDONLY | O_CLOEXEC);
    if (im->fd < 0 || fstat(im->fd, &st) != 0) {
        fprintf(stderr, "%s: %s\n", im->path, strerror(errno));
        if (im->fd >= 0) close(im->fd);
        return false;
    }
    im->size = S_ISREG(st.st_mode) ? (u64)st.st_size : RDB_IN_UNKNOWN;
    im->source.read = import_read;
    keyspace_init(&im->ks, memory_engine_new(DATABASES, (u64)clock_wall_ms()), &im->journal);
    im->ks.compress = true;
    rdb_loader_init(&im->loader, &im->ks, &im->source, im->size, policy);
    return true;
}

static void close_file(struct import *im)
{
    rdb_loader_release(&im->loader);
    journal_release(&im->journal);
    im->ks.eng->ops->close(im->ks.eng);
    close(im->fd);
}

/* -- backups of a cluster ---------------------------------------------------------------------- */

/* The slots that a file says it has. If several have a slot, because it had another leader when the second
 * file was made, the first counts: what is in one file is of one moment. */
static void import_aux(void *arg, bytes name, bytes value)
{
    struct import *im = arg;
    struct buf text = {0};
    unsigned first, last;
    int used = 0;
    if (!bytes_eq(name, BYTES_LIT(CLUSTER_SLOTS_AUX))) return;
    buf_append_bytes(&text, value);
    buf_append_char(&text, '\0');
    im->backups++;
    for (const char *p = text.p; sscanf(p, "%u-%u%n", &first, &last, &used) == 2; p += *p == ',') {
        p += used;
        for (; first <= last && last < KEY_SLOTS; first++)
            if (!im->file_of[first]) im->file_of[first] = (u16)im->number;
    }
    buf_release(&text);
}

/* Reads the fields at the beginnings of all files. */
static bool survey_files(struct import *im)
{
    struct rdb_policy policy = {.skip_unsupported = true, .aux = import_aux, .arg = im};
    for (im->number = 1; im->number <= im->files_n; im->number++) {
        im->path = im->files[im->number - 1];
        if (!open_file(im, &policy)) return false;
        while (rdb_loader_offset(&im->loader) < AUX_WITHIN && rdb_loader_step(&im->loader, 1) == ERR_AGAIN) {}
        close_file(im);
    }
    u32 missing = 0;
    for (u32 i = 0; i < KEY_SLOTS && im->backups; i++) missing += !im->file_of[i];
    if (!missing || im->partial) return true;
    fprintf(stderr,
            "These files are a backup of a cluster, and %u of its %d slots are in none of them. Give the "
            "files of all nodes, or --partial.\n",
            missing, KEY_SLOTS);
    return false;
}

/* -- importing --------------------------------------------------------------------------------- */

static bool import_slices(struct import *im)
{
    err e;
    do {
        i64 since_ms = clock_mono_ms();
        u64 before = rdb_loader_offset(&im->loader);
        keyspace_begin(&im->ks, clock_wall_ms(), EXPIRY_ACTIVE);
        e = rdb_loader_step(&im->loader, SLICE_BYTES);
        if (e == ERR_SYNTAX) {
            fprintf(stderr, "%s: %s\n", im->path, im->loader.error);
            return false;
        }
        if (!send_slice(im, rdb_loader_offset(&im->loader) - before, since_ms)) {
            fprintf(stderr, "%s: %s\n", im->path, im->target.error);
            return false;
        }
        (void)!im->ks.eng->ops->commit(im->ks.eng, 1);
        tell_import(im, e == OK);
    } while (e != OK);
    return true;
}

static bool import_file(struct import *im)
{
    struct rdb_policy policy = {
        .replace = true, .skip_unsupported = true, .checksum = true, .library = import_library,
        .note = import_note, .arg = im};
    im->path = im->files[im->number - 1];
    if (!open_file(im, &policy)) return false;
    bool ok = import_slices(im);
    close_file(im);
    im->from = 0; /* it was that file's */
    return ok;
}

static bool import_files(struct import *im)
{
    if (!target_open(&im->target, im->to, im->user, getenv("REDISCLI_AUTH"))) {
        fprintf(stderr, "%s\n", im->target.error);
        return false;
    }
    if (!survey_files(im)) return false;
    im->started_ms = im->told_ms = clock_mono_ms();
    for (im->number = 1; im->number <= im->files_n; im->number++)
        if (!import_file(im)) return false;
    printf("%llu keys and %llu libraries of functions imported; %llu were there already and were left as "
           "they are.\n",
           (unsigned long long)(im->keys - MIN(im->keys, im->batch.existed)),
           (unsigned long long)im->libraries, (unsigned long long)im->batch.existed);
    if (im->left_out)
        printf("Left out: %llu keys of other databases than %u (--db).\n", (unsigned long long)im->left_out,
               im->db);
    return true;
}

bool import_wanted(int argc, char **argv, int *exit_code)
{
    bool wanted = false;
    for (int i = 1; i < argc; i++) wanted |= strcmp(argv[i], "--to") == 0;
    if (!wanted) return false;
    struct import *im = mem_zalloc(sizeof *im);
    *exit_code = !import_options(im, argc, argv) ? 2 : import_files(im) ? 0 : 1;
    target_close(&im->target);
    batch_release(&im->batch);
    mem_free(im);
    return true;
}
