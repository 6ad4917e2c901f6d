/* Files that appear whole or not at all: on the loop and on the spot, on full disks, given up, and with the
 * process killed on the way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/rand.h"
#include "persist/disk_file.h"
#include "persist/disk_io.h"

#define MB ((size_t)1 << 20)

/* -- a folder ------------------------------------------------------------------------------------ */

static char dir[] = "/tmp/mayfly-disk-XXXXXX";

static const char *in_dir(const char *name)
{
    static char paths[4][128];
    static unsigned at;
    char *path = paths[at++ % ARRAY_LEN(paths)];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static bool exists(const char *name)
{
    struct stat st;
    return lstat(in_dir(name), &st) == 0;
}

static void put_file(const char *name, bytes content)
{
    FILE *f = fopen(in_dir(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(content.p, 1, content.n, f), content.n);
    assert_int_equal(fclose(f), 0);
}

static void check_file(const char *name, bytes content)
{
    FILE *f = fopen(in_dir(name), "rb");
    assert_non_null(f);
    char *got = mem_alloc(content.n + 1);
    assert_int_equal(fread(got, 1, content.n + 1, f), content.n);
    assert_true(content.n == 0 || memcmp(got, content.p, content.n) == 0);
    mem_free(got);
    fclose(f);
}

static bytes old_content(void) { return BYTES_LIT("what was there before"); }

static int set_up(void **state UNUSED)
{
    put_file("file", old_content());
    return 0;
}

static int tear_down(void **state UNUSED)
{
    assert_false(exists("temp")); /* whatever happened */
    return remove(in_dir("file"));
}

static bytes noise(struct buf *space, size_t n)
{
    u64 rng = n + 1;
    buf_clear(space);
    buf_reserve(space, n + 8);
    for (; space->n < n; space->n += 8) {
        u64 x = rand_next(&rng);
        memcpy(space->p + space->n, &x, 8);
    }
    space->n = n;
    return buf_bytes(space);
}

/* -- writing -------------------------------------------------------------------------------------- */

struct outcome {
    int calls;
    bool ok;
};

static void note_done(void *arg, bool ok)
{
    struct outcome *o = arg;
    o->calls++;
    o->ok = ok;
}

/* A loop to run, or none: every test is for both. */
struct fixture {
    uv_loop_t loop, *use;
    struct disk_file file;
    struct outcome outcome;
};

static void fixture_open(struct fixture *p, bool with_loop, const char *temp, const char *path)
{
    *p = (struct fixture){0};
    if (with_loop) {
        assert_int_equal(uv_loop_init(&p->loop), 0);
        p->use = &p->loop;
    }
    if (!disk_file_open(&p->file, p->use, in_dir(temp), in_dir(path))) fail_msg("%s", p->file.error);
}

static void fixture_close(struct fixture *p)
{
    if (p->use) {
        assert_int_equal(uv_run(p->use, UV_RUN_DEFAULT), 0);
        assert_int_equal(uv_loop_close(p->use), 0);
    }
    assert_int_equal(p->outcome.calls, 1);
    assert_null(p->file.state);
}

/* In odd pieces, with a turn of the loop now and then, and for as long as the file is full. False: refused. */
static bool give(struct fixture *p, bytes all, u64 seed)
{
    u64 rng = seed;
    while (all.n) {
        size_t n = 1 + rand_below(&rng, (u64)1 << rand_below(&rng, 22));
        n = MIN(n, all.n);
        if (!p->file.sink.write(&p->file.sink, bytes_of(all.p, n))) return false;
        all = bytes_of(all.p + n, all.n - n);
        if (p->use && rand_below(&rng, 4) == 0) uv_run(p->use, UV_RUN_NOWAIT);
        while (p->use && disk_file_full(&p->file)) uv_run(p->use, UV_RUN_ONCE);
    }
    return true;
}

static void test_content(void **state UNUSED)
{
    static const size_t sizes[] = {0, 1, 1000, 256 << 10, (256 << 10) + 1, 3 * MB, 40 * MB};
    struct buf space = {0}, before = {0};
    buf_append_bytes(&before, old_content());
    for (size_t i = 0; i < 2 * ARRAY_LEN(sizes); i++) {
        struct fixture p;
        bytes content = noise(&space, sizes[i / 2]);
        fixture_open(&p, i % 2, "temp", "file");
        assert_true(give(&p, content, i + 1));
        check_file("file", buf_bytes(&before));
        disk_file_finish(&p.file, note_done, &p.outcome);
        if (!p.use) assert_int_equal(p.outcome.calls, 1);
        fixture_close(&p);
        assert_true(p.outcome.ok);
        assert_string_equal(p.file.error, "");
        check_file("file", content);
        buf_clear(&before);
        buf_append_bytes(&before, content);
    }
    buf_release(&space);
    buf_release(&before);
}

/* Without a turn of the loop nothing gets away: `full` says when to stop, and the loop makes room again. */
static void test_full(void **state UNUSED)
{
    struct fixture p;
    struct buf space = {0}, all = {0};
    bytes piece = noise(&space, 60000);
    fixture_open(&p, true, "temp", "file");
    for (int round = 0; round < 3; round++) {
        while (!disk_file_full(&p.file)) {
            assert_true(p.file.sink.write(&p.file.sink, piece));
            buf_append_bytes(&all, piece);
        }
        assert_in_range(disk_file_waiting(&p.file), DISK_FILE_AHEAD, DISK_FILE_AHEAD + piece.n);
        while (disk_file_full(&p.file)) uv_run(p.use, UV_RUN_ONCE);
    }
    disk_file_finish(&p.file, note_done, &p.outcome);
    fixture_close(&p);
    assert_true(p.outcome.ok);
    check_file("file", buf_bytes(&all));
    buf_release(&space);
    buf_release(&all);
}

/* -- failures ------------------------------------------------------------------------------------- */

/* Gives until it is refused, then ends it this way: the file of before is still there. */
static void check_refused(struct fixture *p, bool finish, const char *why)
{
    struct buf space = {0};
    bytes content = noise(&space, 30 * MB);
    u64 seed = 1;
    while (give(p, content, seed)) assert_true(++seed < 100);
    assert_non_null(strstr(p->file.error, why));
    assert_false(disk_file_full(&p->file)); /* the source need not wait */
    assert_false(exists("temp"));           /* the space is free at once */
    assert_false(p->file.sink.write(&p->file.sink, BYTES_LIT("more")));
    (finish ? disk_file_finish : disk_file_abandon)(&p->file, note_done, &p->outcome);
    fixture_close(p);
    assert_false(p->outcome.ok);
    assert_non_null(strstr(p->file.error, why));
    check_file("file", old_content());
    buf_release(&space);
}

/* A limit of 5.3 MB: the last write before is a short one. */
static void test_size_limit(void **state UNUSED)
{
    struct rlimit before, low;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = before;
    low.rlim_cur = 5 * MB + 300000;
    signal(SIGXFSZ, SIG_IGN);
    for (int way = 0; way < 4; way++) {
        struct fixture p;
        fixture_open(&p, way & 1, "temp", "file");
        setrlimit(RLIMIT_FSIZE, &low);
        check_refused(&p, way & 2, "writing");
        setrlimit(RLIMIT_FSIZE, &before);
        assert_non_null(strstr(p.file.error, strerror(EFBIG)));
    }
    signal(SIGXFSZ, SIG_DFL);
}

static void test_no_space(void **state UNUSED)
{
    for (int way = 0; way < 4; way++) {
        struct fixture p;
        assert_int_equal(symlink("/dev/full", in_dir("temp")), 0); /* which is removed, not the device */
        fixture_open(&p, way & 1, "temp", "file");
        check_refused(&p, way & 2, strerror(ENOSPC));
    }
    assert_int_equal(access("/dev/full", F_OK), 0);
}

/* A source that waits for room learns of the failure: nothing is kept that will never be written. */
static void test_fails_while_full(void **state UNUSED)
{
    struct fixture p;
    struct buf space = {0};
    bytes piece = noise(&space, 1 * MB);
    assert_int_equal(symlink("/dev/full", in_dir("temp")), 0);
    fixture_open(&p, true, "temp", "file");
    while (!disk_file_full(&p.file)) assert_true(p.file.sink.write(&p.file.sink, piece));
    while (!p.file.error[0]) uv_run(p.use, UV_RUN_ONCE);
    assert_false(disk_file_full(&p.file));
    assert_int_equal(disk_file_waiting(&p.file), 0);
    disk_file_finish(&p.file, note_done, &p.outcome);
    fixture_close(&p);
    assert_false(p.outcome.ok);
    buf_release(&space);
}

/* What fails only at the end: little is written before, and it can't be written, or not be put in place. */
static void test_fails_at_the_end(void **state UNUSED)
{
    assert_int_equal(mkdir(in_dir("folder"), 0755), 0);
    put_file("folder/occupied", BYTES_LIT("x"));
    for (int way = 0; way < 4; way++) {
        struct fixture p;
        bool full = way & 2;
        if (full) assert_int_equal(symlink("/dev/full", in_dir("temp")), 0);
        fixture_open(&p, way & 1, "temp", full ? "file" : "folder");
        assert_true(give(&p, BYTES_LIT("a few words"), 1));
        disk_file_finish(&p.file, note_done, &p.outcome);
        fixture_close(&p);
        assert_false(p.outcome.ok);
        assert_non_null(strstr(p.file.error, full ? "writing" : "renaming"));
        assert_false(exists("temp"));
        check_file("file", old_content());
        check_file("folder/occupied", BYTES_LIT("x"));
    }
    remove(in_dir("folder/occupied"));
    remove(in_dir("folder"));
}

static void test_no_folder(void **state UNUSED)
{
    struct disk_file f;
    assert_false(disk_file_open(&f, NULL, in_dir("none/temp"), in_dir("none/file")));
    assert_non_null(strstr(f.error, strerror(ENOENT)));
    assert_false(disk_sync_folder(in_dir("none")));
    assert_int_equal(errno, ENOENT);
    assert_true(disk_sync_folder(dir));
    assert_int_equal(mkdir(in_dir("locked"), 0555), 0);
    if (geteuid() != 0) { /* whom nothing stops */
        assert_false(disk_file_open(&f, NULL, in_dir("locked/temp"), in_dir("locked/file")));
        assert_non_null(strstr(f.error, strerror(EACCES)));
        assert_false(disk_replace(in_dir("locked"), "x", BYTES_LIT("y")));
        assert_int_equal(errno, EACCES);
    }
    remove(in_dir("locked"));
}

static void test_abandoned(void **state UNUSED)
{
    struct buf space = {0};
    for (int way = 0; way < 8; way++) {
        struct fixture p;
        fixture_open(&p, way & 1, "temp", "file");
        assert_true(exists("temp"));
        assert_true(give(&p, noise(&space, way & 2 ? 5 * MB : 100), 7));
        disk_file_abandon(&p.file, way & 4 ? note_done : NULL, &p.outcome);
        if (!(way & 4)) p.outcome.calls++;
        fixture_close(&p);
        assert_false(p.outcome.ok);
        assert_string_equal(p.file.error, "");
        assert_false(exists("temp"));
        check_file("file", old_content());
    }
    buf_release(&space);
}

/* -- small things --------------------------------------------------------------------------------- */

static void test_replace(void **state UNUSED)
{
    struct buf space = {0};
    for (size_t n = 0; n < 300000; n = n * 3 + 1) {
        bytes content = noise(&space, n);
        assert_true(disk_replace(dir, "file", content));
        check_file("file", content);
        assert_false(exists("temp-file"));
    }
    assert_false(disk_replace(in_dir("none"), "file", BYTES_LIT("x")));
    assert_int_equal(errno, ENOENT);
    assert_int_equal(mkdir(in_dir("folder"), 0755), 0);
    assert_false(disk_replace(dir, "folder", BYTES_LIT("x")));
    assert_int_equal(errno, EISDIR);
    assert_false(exists("temp-folder"));
    assert_int_equal(symlink("/dev/full", in_dir("temp-x")), 0);
    assert_false(disk_replace(dir, "x", BYTES_LIT("y")));
    assert_int_equal(errno, ENOSPC);
    assert_false(exists("temp-x"));
    assert_false(exists("x"));
    remove(in_dir("folder"));
    buf_release(&space);
}

static void nothing(int signal_number UNUSED) {}

struct pipe_reader {
    int fd;
    struct buf got;
};

static void *read_slowly(void *arg)
{
    struct pipe_reader *r = arg;
    ssize_t n;
    do {
        usleep(200);
        n = read(r->fd, buf_reserve(&r->got, 30000), 30000);
        if (n > 0) r->got.n += (size_t)n;
    } while (n > 0);
    return NULL;
}

/* A pipe takes little at a time, and signals interrupt the waiting for more. */
static void test_interrupted(void **state UNUSED)
{
    struct buf space = {0};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct pipe_reader reader = {.fd = ends[0]};
    struct sigaction act = {.sa_handler = nothing}; /* without SA_RESTART */
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    sigset_t alarms;
    pthread_t thread;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarms, NULL); /* the reader is not to be disturbed */
    assert_int_equal(pthread_create(&thread, NULL, read_slowly, &reader), 0);
    sigaction(SIGALRM, &act, NULL);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    bytes content = noise(&space, 2 * MB);
    bool ok = disk_write(ends[1], content);
    setitimer(ITIMER_REAL, &never, NULL);
    assert_true(ok);
    close(ends[1]);
    pthread_join(thread, NULL);
    close(ends[0]);
    assert_int_equal(reader.got.n, content.n);
    assert_memory_equal(reader.got.p, content.p, content.n);
    buf_release(&reader.got);
    buf_release(&space);
}

/* -- killed on the way ------------------------------------------------------------------------------ */

/* In a process of its own: three replacements, then a file. */
static int die(const char *where)
{
    struct fixture p;
    snprintf(dir, sizeof dir, "%s", where);
    for (int i = 0; i < 3; i++)
        if (!disk_replace(dir, "small", bytes_of("123" + i, 1))) return 1;
    fixture_open(&p, true, "temp", "file");
    if (!give(&p, BYTES_LIT("new"), 1)) return 1;
    disk_file_finish(&p.file, note_done, &p.outcome);
    uv_run(p.use, UV_RUN_DEFAULT);
    uv_loop_close(p.use);
    return p.outcome.ok ? 0 : 1;
}

/* Its wait status. */
static int die_at(const char *point)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (point) setenv("MAYFLY_CRASH_AT", point, 1);
        execl("/proc/self/exe", "test_disk_file", "die", dir, NULL);
        _exit(99);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void check_death(const char *point, const char *small, bytes file, const char *left)
{
    int status = die_at(point);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    if (small) check_file("small", bytes_str(small));
    else assert_false(exists("small"));
    check_file("file", file);
    assert_int_equal(exists("temp"), left && strcmp(left, "temp") == 0);
    assert_int_equal(exists("temp-small"), left && strcmp(left, "temp-small") == 0);
    remove(in_dir("small"));
    put_file("file", old_content());
    if (left) remove(in_dir(left));
}

static void test_crash_points(void **state UNUSED)
{
    check_death("replace-written", NULL, old_content(), "temp-small");
    check_death("replace-synced", NULL, old_content(), "temp-small");
    check_death("replace-synced:2", "1", old_content(), "temp-small");
    check_death("replace-renamed", "1", old_content(), NULL);
    check_death("replace-renamed:3", "3", old_content(), NULL);
    check_death("replace-folder-synced:2", "2", old_content(), NULL);
    check_death("file-written", "3", old_content(), "temp");
    check_death("file-synced", "3", old_content(), "temp");
    check_death("file-renamed", "3", BYTES_LIT("new"), NULL);
    check_death("file-folder-synced:1", "3", BYTES_LIT("new"), NULL);
    static const char *const others[] = {NULL, "", "file", "file-renamed:2", "file-renamed:0", "elsewhere:1"};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        assert_int_equal(die_at(others[i]), 0);
        check_file("file", BYTES_LIT("new"));
        remove(in_dir("small"));
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "die") == 0) return die(argv[2]);
    if (!mkdtemp(dir)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_content, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_full, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_size_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_space, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fails_while_full, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fails_at_the_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_folder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_abandoned, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_replace, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_interrupted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_crash_points, set_up, tear_down),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(dir);
    return failed;
}
