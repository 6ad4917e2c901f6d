/* Fuzzes loading a folder: a manifest, a base, increments. The first byte says what the rest is:
 *
 *   bit 0  aof-load-truncated      bit 1  aof-load-unchecked      bit 2  rdb-skip-unsupported
 *   bit 3  a manifest, over two files that are there; otherwise files, "<|>" between them: the base, then
 *          increments (one alone is an increment)
 *   bit 4  the files are sealed here as ours, "<->" being between their blocks
 *   bit 5  one bit of a sealed file is then flipped; the first four bytes say which
 *   bit 6  one file, as of Redis before 7
 *
 * Whatever comes gets an error or is loaded. What is loaded can be appended to, and is then the same when it
 * is loaded again. A flipped bit of what was sealed is never loaded. */
#include "base/log.h"
#define assert_true(x) CHECK(x)
#define assert_int_equal(a, b) CHECK((a) == (b))
#define assert_non_null(x) CHECK((x) != NULL)
#define assert_memory_equal(a, b, n) CHECK(memcmp(a, b, n) == 0)

#include "../unit/aof_helpers.h"
#include "persist/aof_block.h"

#include <dirent.h>

#define MAX_STRING_BYTES (1u << 20)
#define FILES_MAX 6
#define BASE_NAME FILENAME ".1.base.aof"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TRUNCATED = 1, UNCHECKED = 2, SKIP = 4, MANIFEST = 8, SEALED = 16, FLIPPED = 32, SINGLE = 64 };

/* -- the folder ---------------------------------------------------------------------------------- */

static void empty(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir) return;
    for (struct dirent *d; (d = readdir(dir));)
        if (d->d_type == DT_REG) (void)unlinkat(dirfd(dir), d->d_name, 0);
    closedir(dir);
}

/* One for the process: it is emptied for every input. */
static struct aof_folder here;

static void remove_folder(void) { aof_folder_close(&here); }

static struct aof_folder *clean_folder(void)
{
    char path[256];
    if (!here.dir[0]) {
        aof_folder_open(&here);
        here.log.level = LOG_NOTHING;
        atexit(remove_folder);
    }
    empty(here.dir);
    empty(path_in(&here, "", path));
    mkdir(path, 0755);
    return &here;
}

static void put(const struct aof_folder *p, const char *name, bytes content)
{
    char path[256];
    write_file(path_in(p, name, path), content);
}

static void put_outside(const struct aof_folder *p, const char *name, bytes content)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", p->dir, name);
    write_file(path, content);
}

/* -- pieces of the input --------------------------------------------------------------------------- */

/* What is before the mark; *rest is what is behind it. False: there was none, and no rest. */
static bool split(bytes *rest, const char *mark, bytes *piece)
{
    const char *at = rest->n ? memmem(rest->p, rest->n, mark, 3) : NULL;
    *piece = at ? bytes_of(rest->p, (size_t)(at - rest->p)) : *rest;
    *rest = at ? bytes_of(at + 3, rest->n - piece->n - 3) : bytes_of("", 0);
    return at;
}

/* As aof_log.c writes it; the chain continues in the next file. */
static void seal(struct buf *file, bool base, u64 seq, u64 *chain, bytes blocks)
{
    char line[AOF_LINE];
    bytes block;
    aof_line_print(line, base ? AOF_TAG_BASE : AOF_TAG_INCREMENT, seq, base ? 0 : *chain);
    buf_append(file, line, AOF_LINE);
    u64 sum = aof_chain_start(line);
    for (bool more = true; more;) {
        more = split(&blocks, "<->", &block);
        if (!block.n || block.p[block.n - 1] != '\n') continue; /* records end so: zeros at an end are torn */
        sum = aof_chain_next(sum, block);
        aof_line_print(line, AOF_TAG_BLOCK, block.n, sum);
        buf_append(file, line, AOF_LINE);
        buf_append_bytes(file, block);
    }
    if (!base) *chain = sum;
}

static void name_file(char name[64], bool base, u64 seq)
{
    snprintf(name, 64, base ? BASE_NAME : FILENAME ".%llu.incr.aof", (unsigned long long)seq);
}

static void put_files(const struct aof_folder *p, u8 how, bytes rest)
{
    struct buf file[FILES_MAX] = {0}, manifest = {0};
    bytes piece;
    u64 chain = 0, bit = 0, total = 0;
    u32 n = 0;
    char name[64];
    if (how & FLIPPED && rest.n >= 4) {
        bit = (u64)(u8)rest.p[0] | (u64)(u8)rest.p[1] << 8 | (u64)(u8)rest.p[2] << 16;
        rest = bytes_of(rest.p + 4, rest.n - 4);
    }
    bool has_base = rest.n && memmem(rest.p, rest.n, "<|>", 3);
    for (bool more = true; more && n < FILES_MAX; n++) {
        bool base = n == 0 && has_base;
        more = split(&rest, "<|>", &piece);
        if (how & SEALED) seal(&file[n], base, base ? 1 : n + 1, &chain, piece);
        else buf_append_bytes(&file[n], piece);
        name_file(name, base, n + 1);
        buf_printf(&manifest, "file %s seq %u type %c\n", name, base ? 1 : n + 1, base ? 'b' : 'i');
        total += file[n].n * 8;
    }
    if (how & SEALED && how & FLIPPED) {
        bit %= total;
        for (u32 i = 0; i < n; bit -= file[i++].n * 8) {
            if (bit >= file[i].n * 8) continue;
            file[i].p[bit / 8] ^= (char)(1 << bit % 8);
            break;
        }
    }
    for (u32 i = 0; i < n; i++) {
        name_file(name, i == 0 && has_base, i + 1);
        put(p, name, buf_bytes(&file[i]));
        buf_release(&file[i]);
    }
    put(p, FILENAME ".manifest", buf_bytes(&manifest));
    buf_release(&manifest);
}

static void put_all(const struct aof_folder *p, u8 how, bytes rest)
{
    if (how & MANIFEST) {
        put(p, FILENAME ".1.incr.aof", BYTES_LIT("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n"));
        put(p, FILENAME ".2.incr.aof", BYTES_LIT("*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$1\r\n2\r\n"));
        put(p, FILENAME ".manifest", rest);
    } else if (how & SINGLE) {
        put_outside(p, FILENAME, rest);
    } else {
        put_files(p, how, rest);
    }
}

/* -- loading --------------------------------------------------------------------------------------- */

/* The data, dead keys included, after loading; `append` continues the files. */
static err load(const struct aof_options *o, bool append, struct buf *dump)
{
    struct world w;
    struct aof *a;
    world_open(&w);
    w.region.ks.max_string = MAX_STRING_BYTES;
    enum aof_found found = aof_open(&a, o);
    err e = found == AOF_NONE ? OK : found == AOF_BROKEN ? ERR_SYNTAX : load_into(a, &w.region, 500);
    CHECK(e == OK || e == ERR_SYNTAX);
    if (e == OK && append) {
        CHECK(aof_start(a, &w.region.journal));
        run(&w, "SELECT 1");
        run(&w, "SET appended 1");
        CHECK(aof_flush(a, T0));
        aof_stop(a);
    }
    dump_all(&w.region, dump); /* checks the counts, also of what came before an error */
    aof_free(a);
    world_close(&w);
    return e;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    u8 how = data[0];
    struct aof_folder *p = clean_folder();
    struct buf before = {0}, after = {0};
    struct aof_options o = options_in(p);
    o.load_truncated = how & TRUNCATED;
    o.load_unchecked = how & UNCHECKED;
    o.skip_unsupported = how & SKIP;
    put_all(p, how, bytes_of((const char *)data + 1, size - 1));
    err e = load(&o, true, &before);
    CHECK(!(how & SEALED && how & FLIPPED && !(how & (MANIFEST | SINGLE))) || e == ERR_SYNTAX);
    if (e == OK) {
        CHECK(load(&o, false, &after) == OK);
        CHECK(same(&before, &after));
    }
    buf_release(&before);
    buf_release(&after);
    return 0;
}
