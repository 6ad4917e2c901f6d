/* The process is killed at every step of starting, moving an old file in, rewriting, and start-rewriting,
 * each as often as it comes by: nothing that was acknowledged is lost, and nothing else appears.
 *
 * The test starts itself as a child, with MAYFLY_CRASH_AT set. The child notes each tick it has flushed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <signal.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "aof_helpers.h"
#include "resp/command.h"

#define TICKS 12
#define LATER \
    (T0 + TICKS * 10) /* a base has no dead keys, so what is compared is what is alive then */

static const char *const points[] = {
    "aof-start-1",     "aof-start-2",           "aof-start-3",     "aof-rewrite-1",
    "aof-rewrite-2",   "aof-rewrite-3",         "file-written",    "file-synced",
    "file-renamed",    "file-folder-synced",    "aof-rewrite-7",   "aof-rewrite-8",
    "aof-rewrite-9",   "aof-rewrite-10",        "replace-written", "replace-synced",
    "replace-renamed", "replace-folder-synced",
};

static void run_tick(struct world *w, int i)
{
    char line[200];
    snprintf(line, sizeof line,
             "select %d;set k%d v;append all x;rpush l %d;sadd s a%d;spop s;set t%d v px 50",
             i % DBS, i % 5, i, i, i);
    run_all(w, line);
}

/* -- the child ------------------------------------------------------------------------------------- */

static void acknowledge(int fd, char what) { CHECK(write(fd, &what, 1) == 1); }

static bool child_tick(struct writer *wr, int i, int acks)
{
    at(&wr->w, i * 10);
    run_tick(&wr->w, i);
    bool ok = aof_flush(wr->a, now_of(&wr->w));
    if (ok) acknowledge(acks, 't');
    return ok;
}

/* Ticks, and in the middle of them two rewrites, the first one of RDB. */
static bool child_rewrites(struct writer *wr, int acks)
{
    bool ok = true;
    for (int i = 0; i < TICKS && ok; i++) {
        ok = child_tick(wr, i, acks);
        if (ok && (i == 3 || i == 7))
            ok = aof_rewrite_begin(wr->a) && write_base(wr->a, &wr->w.region, i == 3);
        if (ok && (i == 5 || i == 9)) ok = aof_rewrite_end(wr->a, i == 5, 0);
    }
    return ok;
}

/* Other data than the files have: the first ticks are in memory only, the base is to hold them. */
static bool child_start_rewriting(struct writer *wr, int acks)
{
    bool ok = true;
    for (int i = 0; i < TICKS && ok; i++) {
        if (i == 4)
            ok = aof_start_rewriting(wr->a, &wr->w.region.journal) &&
                 write_base(wr->a, &wr->w.region, true);
        ok = ok && child_tick(wr, i, acks);
        if (ok && i == 8) {
            ok = aof_rewrite_end(wr->a, true, 0);
            if (ok) acknowledge(acks, 'e');
        }
    }
    return ok;
}

static int child(const char *scenario, const char *dir)
{
    char path[256];
    struct writer wr;
    struct log log = {.level = LOG_NOTHING};
    struct aof_options o = {
        .dir = dir, .dirname = FOLDER, .filename = FILENAME, .log = &log, .sync = AOF_SYNC_ALWAYS};
    snprintf(path, sizeof path, "%s/acks", dir);
    int acks = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    world_open(&wr.w);
    enum aof_found found = aof_open(&wr.a, &o);
    bool ok = acks >= 0 && found != AOF_BROKEN;
    if (strcmp(scenario, "start-rewriting") == 0) {
        ok = ok && child_start_rewriting(&wr, acks);
    } else {
        if (ok && found == AOF_FILES) ok = load_into(wr.a, &wr.w.region, 1000) == OK;
        ok = ok && aof_start(wr.a, &wr.w.region.journal) && child_rewrites(&wr, acks);
    }
    aof_stop(wr.a);
    aof_free(wr.a);
    world_close(&wr.w);
    return ok ? 0 : 2;
}

/* -- the parent ------------------------------------------------------------------------------------ */

/* True: it was killed. */
static bool run_child(const char *scenario, const char *dir, const char *point, int n)
{
    char plan[64];
    int status;
    snprintf(plan, sizeof plan, "%s:%d", point, n);
    pid_t pid = fork();
    if (pid == 0) {
        setenv("MAYFLY_CRASH_AT", plan, 1);
        execl("/proc/self/exe", "test_aof_crash", "child", scenario, dir, (char *)NULL);
        _exit(3);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return true;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s at %s: the child ended with %x", scenario, plan, status);
    return false;
}

static u32 acknowledged(const struct aof_folder *p, char what)
{
    char path[256];
    struct buf b = {0};
    u32 n = 0;
    snprintf(path, sizeof path, "%s/acks", p->dir);
    read_file(path, &b);
    for (size_t i = 0; i < b.n; i++) n += b.p[i] == what;
    buf_release(&b);
    return n;
}

/* The data after so many ticks. */
static void expect(const char *before, u32 ticks, struct buf *out)
{
    struct world w;
    world_open(&w);
    if (*before) run_all(&w, before);
    for (u32 i = 0; i < ticks; i++) {
        at(&w, i * 10);
        run_tick(&w, (int)i);
    }
    dump_at(&w.region, LATER, out);
    world_close(&w);
}

/* The files hold all acknowledged ticks, and at most the one that was just being acknowledged. */
static bool holds(const struct aof_folder *p, const char *before, const struct buf *got)
{
    struct buf want = {0};
    u32 n = acknowledged(p, 't');
    expect(before, n, &want);
    bool ok = same(got, &want);
    expect(before, MIN(n + 1, TICKS), &want);
    ok = ok || same(got, &want);
    buf_release(&want);
    return ok;
}

/* After the crash everything continues. */
static void check_going_on(struct aof_folder *p)
{
    struct writer wr;
    struct aof_options o = options_in(p);
    writer_open(&wr, &o);
    assert_true(tick(&wr, "set on 1"));
    check_files(&wr, &o);
    assert_true(rewrite(&wr, true));
    assert_true(tick(&wr, "set on 2"));
    check_files(&wr, &o);
    writer_close(&wr);
    writer_open(&wr, &o);
    check_files(&wr, &o);
    writer_close(&wr);
}

typedef void (*prepare_fn)(struct aof_folder *p);

static u32 crash_everywhere(const char *scenario, const char *before, prepare_fn prepare,
                            const char *point)
{
    u32 crashes = 0;
    bool killed = true;
    for (int n = 1; killed; n++) {
        struct aof_folder p;
        struct buf got = {0}, old = {0};
        aof_folder_open(&p);
        p.log.level = LOG_NOTHING;
        if (prepare) prepare(&p);
        struct aof_options o = options_in(&p);
        killed = run_child(scenario, p.dir, point, n);
        crashes += killed;
        assert_int_equal(load_dump_at(&o, 1000, LATER, &got), OK);
        bool ok = holds(&p, strcmp(scenario, "start-rewriting") == 0 ? "" : before, &got);
        if (!ok && strcmp(scenario, "start-rewriting") == 0 && !acknowledged(&p, 'e')) {
            expect(before, 0, &old); /* the files of before */
            ok = same(&got, &old);
        }
        if (!ok)
            fail_msg("%s at %s, %d: other data after %u ticks", scenario, point, n,
                     acknowledged(&p, 't'));
        check_going_on(&p);
        buf_release(&got);
        buf_release(&old);
        aof_folder_close(&p);
    }
    return crashes;
}

static void test_from_nothing(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LEN(points); i++)
        if (!crash_everywhere("rewrite", "", NULL, points[i]))
            fail_msg("nobody comes by %s", points[i]);
}

static void put_old_file(struct aof_folder *p)
{
    char path[256];
    struct buf b = {0};
    resp_write_command(&b, 3, (bytes[]){BYTES_LIT("SET"), BYTES_LIT("old"), BYTES_LIT("1")});
    snprintf(path, sizeof path, "%s/" FILENAME, p->dir);
    write_file(path, buf_bytes(&b));
    buf_release(&b);
}

static void test_upgrade(void **state UNUSED)
{
    static const char *const more[] = {"aof-upgrade-1", "aof-upgrade-2", "aof-upgrade-3"};
    for (size_t i = 0; i < ARRAY_LEN(more); i++)
        assert_int_equal(crash_everywhere("rewrite", "set old 1", put_old_file, more[i]), 1);
    for (size_t i = 0; i < ARRAY_LEN(points); i++)
        crash_everywhere("rewrite", "set old 1", put_old_file, points[i]);
}

static void put_old_folder(struct aof_folder *p)
{
    struct writer wr;
    struct aof_options o = options_in(p);
    writer_open(&wr, &o);
    assert_true(tick(&wr, "set old 1"));
    assert_true(rewrite(&wr, true));
    writer_close(&wr);
}

static void test_start_rewriting(void **state UNUSED)
{
    u32 crashes = 0;
    for (size_t i = 0; i < ARRAY_LEN(points); i++)
        crashes += crash_everywhere("start-rewriting", "", NULL, points[i]);
    for (size_t i = 0; i < ARRAY_LEN(points); i++)
        crashes += crash_everywhere("start-rewriting", "set old 1", put_old_folder, points[i]);
    assert_in_range(crashes, 30, 1000);
}

int main(int argc, char **argv)
{
    if (argc == 4) return child(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_from_nothing),
        cmocka_unit_test(test_upgrade),
        cmocka_unit_test(test_start_rewriting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
