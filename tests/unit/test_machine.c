/* cgroup_memory_limit on made-up /proc and /sys trees: v1, v2, both, containers, and what is not there. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/machine.h"

#define MB ((u64)1 << 20)
#define V1 "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
#define V2 "41 31 0:38 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
#define OTHERS "22 1 254:1 / / rw - ext4 /dev/vda rw\n32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"

static char root[64];

static int setup(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/mayfly-machine-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int drop(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static int teardown(void **state)
{
    (void)state;
    return nftw(root, drop, 8, FTW_DEPTH | FTW_PHYS);
}

/* A file below the root, with the folders it is in. */
static void put(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(whole, 0700);
        *at = '/';
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void nothing_there(void **state)
{
    (void)state;
    assert_true(cgroup_memory_limit(root) == UINT64_MAX);
    put("/proc/self/cgroup", "garbage\n:\n1:cpu:/x\n");
    put("/proc/self/mountinfo", "garbage\n - \n" OTHERS);
    assert_true(cgroup_memory_limit(root) == UINT64_MAX);
    put("/proc/self/cgroup", "0::/a\n");
    put("/proc/self/mountinfo", V2);
    assert_true(cgroup_memory_limit(root) == UINT64_MAX);
}

static void version_2(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/system.slice/a.service\n");
    put("/proc/self/mountinfo", OTHERS V2);
    put("/sys/fs/cgroup/system.slice/a.service/memory.max", "max\n");
    assert_true(cgroup_memory_limit(root) == UINT64_MAX);
    put("/sys/fs/cgroup/system.slice/a.service/memory.max", "536870912\n");
    assert_true(cgroup_memory_limit(root) == 512 * MB);
    put("/sys/fs/cgroup/system.slice/memory.max", "268435456\n"); /* a parent's counts, too */
    assert_true(cgroup_memory_limit(root) == 256 * MB);
    put("/sys/fs/cgroup/system.slice/a.service/memory.high", "134217728\n");
    assert_true(cgroup_memory_limit(root) == 128 * MB);
    put("/sys/fs/cgroup/memory.max", "67108864\n"); /* a container's own group, mounted as the top */
    assert_true(cgroup_memory_limit(root) == 64 * MB);
    put("/sys/fs/cgroup/system.slice/b.service/memory.max", "1048576\n"); /* somebody else's */
    assert_true(cgroup_memory_limit(root) == 64 * MB);
}

static void version_1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "5:cpu,cpuacct:/\n4:hugetlb,memory:/a/b\n0::/\n");
    put("/proc/self/mountinfo", OTHERS V1);
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1073741824\n");
    put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
    assert_true(cgroup_memory_limit(root) == 1024 * MB);
    put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "268435456\n");
    assert_true(cgroup_memory_limit(root) == 256 * MB);
}

/* Without a namespace of its own a container is told the host's names, and has its own group mounted. */
static void in_a_container(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:memory:/docker/abc\n");
    put("/proc/self/mountinfo", "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
    assert_true(cgroup_memory_limit(root) == 256 * MB);
    put("/proc/self/cgroup", "4:memory:/docker/abc/inner\n");
    put("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "134217728\n");
    assert_true(cgroup_memory_limit(root) == 128 * MB);
    put("/proc/self/cgroup", "4:memory:/docker/abcdef\n"); /* not below what is mounted */
    assert_true(cgroup_memory_limit(root) == 256 * MB);
}

static void both_versions(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:memory:/a\n0::/b\n");
    put("/proc/self/mountinfo", OTHERS V1 "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "536870912\n");
    assert_true(cgroup_memory_limit(root) == 512 * MB);
    put("/sys/fs/cgroup/unified/b/memory.max", "268435456\n");
    assert_true(cgroup_memory_limit(root) == 256 * MB);
}

static void the_real_one(void **state)
{
    (void)state;
    u64 physical = (u64)sysconf(_SC_PHYS_PAGES) * (u64)sysconf(_SC_PAGESIZE);
    assert_true(machine_memory() > MB && machine_memory() <= physical);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(nothing_there), T(version_2), T(version_1), T(in_a_container), T(both_versions), T(the_real_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
