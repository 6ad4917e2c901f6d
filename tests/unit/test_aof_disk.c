/* Disks that are full, fail or are slow. The system calls that sync and rename are the test's own here, and
 * fail when they are told to. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <cmocka.h>

#include "aof_helpers.h"

#define INCR1 "appendonly.aof.1.incr.aof"

/* -- system calls ---------------------------------------------------------------------------------- */

static atomic_int fail_fdatasync, fail_folder_sync, fail_rename; /* so many of the next ones */
static atomic_int syncs;
static pthread_mutex_t slow = PTHREAD_MUTEX_INITIALIZER; /* who holds it makes fdatasync wait */

static bool must_fail(atomic_int *left)
{
    int n = atomic_load(left);
    if (n <= 0) return false;
    atomic_store(left, n - 1);
    errno = EIO;
    return true;
}

int fdatasync(int fd)
{
    pthread_mutex_lock(&slow);
    pthread_mutex_unlock(&slow);
    atomic_fetch_add(&syncs, 1);
    return must_fail(&fail_fdatasync) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) && must_fail(&fail_folder_sync)) return -1;
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    return must_fail(&fail_rename) ? -1
                                   : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* -- full disks ------------------------------------------------------------------------------------ */

static void limit_files(u64 bytes_)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes_ ? bytes_ : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void test_full(void **state UNUSED)
{
    struct aof_folder p;
    struct writer wr;
    struct buf before = {0}, got = {0};
    char path[256];
    signal(SIGXFSZ, SIG_IGN);
    for (int sync = 0; sync < 3; sync++) {
        aof_folder_open(&p);
        p.log.level = LOG_NOTHING;
        struct aof_options o = options_in(&p);
        o.sync = (enum aof_sync)sync;
        writer_open(&wr, &o);
        assert_true(tick(&wr, "set a 1"));
        path_in(&p, INCR1, path);
        u64 size = size_of(path);
        dump_all(&wr.w.region, &before);
        limit_files(size + 60); /* a part of it goes in */
        assert_null(aof_refuses(wr.a));
        assert_false(tick(&wr, "set b 0123456789012345678901234567890123456789"));
        assert_string_equal(aof_refuses(wr.a),
                            "MISCONF Errors writing to the AOF file: File too large");
        assert_int_equal(size_of(path), size); /* nothing half done is left */
        assert_int_equal(load_dump(&o, 1000, &got), OK);
        assert_true(same(&got, &before));
        assert_true(tick(&wr, "get a")); /* who only reads is not concerned */
        assert_false(tick(&wr, "set c 1"));
        assert_true(aof_facts(wr.a).write_failed && aof_facts(wr.a).buffer > 100);
        assert_false(aof_rewrite_begin(wr.a));
        aof_cron(wr.a, now_of(&wr.w) + 999);
        aof_cron(wr.a, now_of(&wr.w) + 1000); /* tries, in vain */
        assert_non_null(aof_refuses(wr.a));
        limit_files(0);
        aof_cron(wr.a, now_of(&wr.w) + 1999);
        assert_non_null(aof_refuses(wr.a));
        aof_cron(wr.a, now_of(&wr.w) + 2000);
        assert_null(aof_refuses(wr.a));
        check_files(&wr, &o);
        assert_true(tick(&wr, "set d 1"));
        check_files(&wr, &o);
        writer_close(&wr);
        aof_folder_close(&p);
    }
    buf_release(&before);
    buf_release(&got);
}

/* A long record that does not fit goes to the buffer like any other, and into the file when there is room. */
static void test_full_by_a_long_record(void **state UNUSED)
{
    struct aof_folder p;
    struct writer wr;
    char path[256];
    signal(SIGXFSZ, SIG_IGN);
    aof_folder_open(&p);
    p.log.level = LOG_NOTHING;
    struct aof_options o = options_in(&p);
    writer_open(&wr, &o);
    assert_true(tick(&wr, "set a 1"));
    u64 size = size_of(path_in(&p, INCR1, path));
    limit_files(size + LONG_VALUE / 2);
    set_long(&wr.w, "long");
    assert_false(tick(&wr, "get a"));
    assert_int_equal(size_of(path), size);
    assert_true(aof_facts(wr.a).write_failed && aof_facts(wr.a).buffer > LONG_VALUE);
    limit_files(0);
    aof_cron(wr.a, now_of(&wr.w) + 1000);
    assert_null(aof_refuses(wr.a));
    assert_true(tick(&wr, "append long tail"));
    check_files(&wr, &o);
    writer_close(&wr);
    aof_folder_close(&p);
}

/* -- syncs that fail ------------------------------------------------------------------------------- */

/* always: the tick knows, and no later sync is trusted; a rewrite helps. */
static void test_sync_fails(void **state UNUSED)
{
    struct aof_folder p;
    struct writer wr;
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    o.sync = AOF_SYNC_ALWAYS;
    writer_open(&wr, &o);
    int before = atomic_load(&syncs);
    assert_true(tick(&wr, "set a 1;set b 1"));
    assert_int_equal(atomic_load(&syncs), before + 1); /* one for the whole tick */
    assert_true(tick(&wr, "get a"));
    assert_int_equal(atomic_load(&syncs), before + 1);
    atomic_store(&fail_fdatasync, 1);
    assert_false(tick(&wr, "set c 1"));
    assert_true(logged(&p, "fdatasync failed: Input/output error"));
    static const char start[] = "MISCONF Errors writing to the AOF file: Input/output error";
    assert_memory_equal(aof_refuses(wr.a), start, sizeof start - 1);
    assert_true(aof_facts(wr.a).wants_rewrite);
    before = atomic_load(&syncs);
    assert_false(tick(&wr, "set d 1"));
    aof_cron(wr.a, now_of(&wr.w) + 5000);
    assert_int_equal(atomic_load(&syncs), before); /* it is not asked again */
    assert_non_null(aof_refuses(wr.a));
    check_files(&wr, &o);
    assert_true(aof_rewrite_begin(wr.a));
    assert_non_null(aof_refuses(wr.a));
    assert_true(write_base(wr.a, &wr.w.region, true) && aof_rewrite_end(wr.a, true, 0));
    assert_null(aof_refuses(wr.a));
    assert_true(tick(&wr, "set e 1"));
    check_files(&wr, &o);
    writer_close(&wr);
    aof_folder_close(&p);
}

/* A sync of the new increment that fails during the rewrite is not healed by it. */
static void test_sync_fails_again(void **state UNUSED)
{
    struct aof_folder p;
    struct writer wr;
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    o.sync = AOF_SYNC_ALWAYS;
    writer_open(&wr, &o);
    assert_true(tick(&wr, "set a 1"));
    assert_true(aof_rewrite_begin(wr.a));
    atomic_store(&fail_fdatasync, 1);
    assert_false(tick(&wr, "set b 1"));
    assert_true(write_base(wr.a, &wr.w.region, true) && aof_rewrite_end(wr.a, true, 0));
    assert_non_null(aof_refuses(wr.a));
    assert_true(rewrite(&wr, true));
    assert_null(aof_refuses(wr.a));
    check_files(&wr, &o);
    writer_close(&wr);
    aof_folder_close(&p);
}

/* What was not synced is gone when the power is, a block of it or a part: until the rewrite has ended, this is
 * the end of the log like any other, and no gap in its middle. */
static void test_sync_fails_and_power_goes(void **state UNUSED)
{
    for (int part = 0; part <= 1; part++) {
        for (int tries = 1; tries <= 2; tries++) {
            struct aof_folder p;
            struct writer wr;
            struct buf before = {0}, got = {0};
            char path[256];
            aof_folder_open(&p);
            struct aof_options o = options_in(&p);
            o.sync = AOF_SYNC_ALWAYS;
            writer_open(&wr, &o);
            assert_true(tick(&wr, "set a 1"));
            dump_all(&wr.w.region, &before);
            u64 size = size_of(path_in(&p, INCR1, path));
            atomic_store(&fail_fdatasync, 1);
            assert_false(tick(&wr, "set b 0123456789012345678901234567890123456789"));
            assert_true(aof_rewrite_begin(wr.a));
            if (tries == 2) {
                aof_rewrite_abandon(wr.a);
                assert_non_null(aof_refuses(wr.a));
                assert_true(aof_rewrite_begin(wr.a));
            }
            assert_true(size_of(path) > size + 60);
            assert_int_equal(truncate(path, (off_t)(part ? size_of(path) - 1 : size)), 0);
            assert_int_equal(load_dump(&o, 1000, &got), OK);
            assert_true(same(&got, &before));
            assert_true(write_base(wr.a, &wr.w.region, true) && aof_rewrite_end(wr.a, true, 0));
            assert_null(aof_refuses(wr.a));
            assert_true(tick(&wr, "set c 1"));
            check_files(&wr, &o);
            writer_close(&wr);
            aof_folder_close(&p);
            buf_release(&before);
            buf_release(&got);
        }
    }
}

/* -- in the background ----------------------------------------------------------------------------- */

static void test_everysec(void **state UNUSED)
{
    struct aof_folder p;
    struct writer wr;
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    o.sync = AOF_SYNC_EVERYSEC;
    o.loop = &loop;
    writer_open(&wr, &o);
    int before = atomic_load(&syncs);
    assert_true(tick(&wr, "set a 1"));
    i64 now = now_of(&wr.w);
    aof_cron(wr.a, now + 400);
    assert_int_equal(aof_facts(wr.a).pending_sync, 0);
    aof_cron(wr.a, now + 500);
    assert_int_equal(aof_facts(wr.a).pending_sync, 1);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(aof_facts(wr.a).pending_sync, 0);
    assert_int_equal(atomic_load(&syncs), before + 1);
    aof_cron(wr.a, now + 5000); /* nothing new: nothing to do */
    assert_int_equal(aof_facts(wr.a).pending_sync, 0);

    /* A slow disk: one sync in flight, and what waits for the next is counted. */
    pthread_mutex_lock(&slow);
    assert_true(tick(&wr, "set b 1"));
    aof_cron(wr.a, now + 500);
    assert_true(tick(&wr, "set c 1"));
    aof_cron(wr.a, now + 1000);
    assert_int_equal(aof_facts(wr.a).delayed_sync, 0);
    aof_cron(wr.a, now + 1001);
    aof_cron(wr.a, now + 1100);
    assert_int_equal(aof_facts(wr.a).delayed_sync, 1);
    assert_int_equal(aof_facts(wr.a).pending_sync, 1);
    pthread_mutex_unlock(&slow);
    assert_true(aof_rewrite_begin(wr.a)); /* waits for it */
    assert_int_equal(aof_facts(wr.a).pending_sync, 0);
    assert_true(tick(&wr, "set d 1"));
    assert_true(write_base(wr.a, &wr.w.region, true) && aof_rewrite_end(wr.a, true, 0));
    assert_true(tick(&wr, "set d 1"));
    aof_cron(wr.a, now + 2000);
    uv_run(&loop, UV_RUN_DEFAULT); /* history went, too */
    char path[256];
    assert_int_equal(size_of(path_in(&p, INCR1, path)), UINT64_MAX);
    struct buf manifest = {0};
    assert_true(read_file(path_in(&p, "appendonly.aof.manifest", path), &manifest));
    buf_append_char(&manifest, '\0');
    assert_null(strstr(manifest.p, "type h"));
    buf_release(&manifest);

    /* A failure in the background. */
    atomic_store(&fail_fdatasync, 1);
    assert_true(tick(&wr, "set e 1"));
    aof_cron(wr.a, now + 3000);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_non_null(aof_refuses(wr.a));
    assert_false(tick(&wr, "set f 1"));
    assert_true(rewrite(&wr, true));
    assert_null(aof_refuses(wr.a));
    check_files(&wr, &(struct aof_options){
                         .dir = p.dir, .dirname = FOLDER, .filename = FILENAME, .log = &p.log});

    /* Gone while a sync and a removal are in flight. */
    assert_true(tick(&wr, "set g 1"));
    aof_cron(wr.a, now + 9000);
    aof_free(wr.a);
    world_close(&wr.w);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    aof_folder_close(&p);
}

/* A rewrite is ready when what was appended is on disk, up to a few megabytes; syncing more is the worker's. */
static void test_rewrite_ready(void **state UNUSED)
{
    struct aof_folder p;
    struct writer wr;
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    o.sync = AOF_SYNC_EVERYSEC;
    o.loop = &loop;
    writer_open(&wr, &o);
    assert_true(tick(&wr, "set a 1"));
    assert_true(aof_rewrite_ready(wr.a));
    assert_int_equal(aof_facts(wr.a).pending_sync, 0);

    pthread_mutex_lock(&slow);
    set_long(&wr.w, "a");
    assert_true(tick(&wr, "get b"));
    assert_false(aof_rewrite_ready(wr.a));
    assert_int_equal(aof_facts(wr.a).pending_sync, 1);
    assert_true(tick(&wr, "set b 1"));
    assert_false(aof_rewrite_ready(wr.a));
    pthread_mutex_unlock(&slow);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(aof_rewrite_ready(wr.a));
    assert_int_equal(aof_facts(wr.a).pending_sync, 0);
    int before = atomic_load(&syncs);
    assert_true(aof_rewrite_begin(wr.a));
    assert_int_equal(atomic_load(&syncs), before + 1); /* of `set b 1` */
    assert_true(write_base(wr.a, &wr.w.region, true) && aof_rewrite_end(wr.a, true, 0));
    assert_true(aof_rewrite_ready(wr.a));

    /* After a sync that failed only a rewrite helps: it does not wait for another. */
    atomic_store(&fail_fdatasync, 1);
    set_long(&wr.w, "a");
    assert_false(aof_rewrite_ready(wr.a));
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_non_null(aof_refuses(wr.a));
    assert_true(aof_rewrite_ready(wr.a));
    assert_true(rewrite(&wr, true));
    assert_null(aof_refuses(wr.a));
    writer_close(&wr);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    aof_folder_close(&p);
}

/* -- manifests that can't be written --------------------------------------------------------------- */

static void test_manifest_fails(void **state UNUSED)
{
    struct aof_folder p;
    struct writer wr;
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    writer_open(&wr, &o);
    assert_true(tick(&wr, "set a 1"));
    atomic_store(&fail_rename, 1); /* not replaced */
    assert_false(aof_rewrite_begin(wr.a));
    assert_true(tick(&wr, "set b 1"));
    check_files(&wr, &o);
    atomic_store(&fail_folder_sync, 1); /* replaced, but not for sure: the old one comes back */
    assert_false(aof_rewrite_begin(wr.a));
    assert_null(aof_refuses(wr.a));
    assert_true(tick(&wr, "set c 1"));
    check_files(&wr, &o);
    assert_true(aof_rewrite_begin(wr.a));
    assert_true(write_base(wr.a, &wr.w.region, true));
    atomic_store(&fail_rename, 1);
    assert_false(aof_rewrite_end(wr.a, true, 0));
    assert_true(tick(&wr, "set d 1"));
    check_files(&wr, &o);
    assert_true(rewrite(&wr, true));
    check_files(&wr, &o);
    atomic_store(&fail_folder_sync, 2); /* nor does the old one come back for sure */
    assert_false(aof_rewrite_begin(wr.a));
    assert_non_null(aof_refuses(wr.a));
    assert_true(rewrite(&wr, true));
    assert_null(aof_refuses(wr.a));
    assert_true(tick(&wr, "set e 1"));
    check_files(&wr, &o);
    writer_close(&wr);
    aof_folder_close(&p);
}

static void test_start_fails(void **state UNUSED)
{
    struct aof_folder p;
    struct world w;
    struct aof *a;
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    world_open(&w);
    assert_int_equal(aof_open(&a, &o), AOF_NONE);
    atomic_store(&fail_rename, 1);
    assert_false(aof_start(a, &w.region.journal));
    assert_false(journal_wanted(&w.region.journal) && w.region.journal.sinks->next);
    assert_true(aof_start(a, &w.region.journal));
    aof_stop(a);
    aof_free(a);
    char path[256];
    snprintf(path, sizeof path, "%s/blocked", p.dir);
    write_file(path, BYTES_LIT(""));
    o.dirname = "blocked"; /* a file where the folder should be */
    assert_int_equal(aof_open(&a, &o), AOF_BROKEN);
    aof_free(a);
    world_close(&w);
    aof_folder_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_full_by_a_long_record),
        cmocka_unit_test(test_sync_fails),
        cmocka_unit_test(test_sync_fails_again),
        cmocka_unit_test(test_sync_fails_and_power_goes),
        cmocka_unit_test(test_everysec),
        cmocka_unit_test(test_rewrite_ready),
        cmocka_unit_test(test_manifest_fails),
        cmocka_unit_test(test_start_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
