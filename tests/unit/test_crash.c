/* The crash report of a process in the worst possible state. tests/server/test_crash.py tests the server's. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crash.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__SANITIZE_UNDEFINED__) || \
    !defined(__x86_64__)
#define SKIPPED 1
#else
#define SKIPPED 0
#endif

static char path[64], report[64 << 10];

static void write_nothing_wrong(void *owner, struct crash_out *out) { crash_printf(out, "owner: %s\n", (char *)owner); }

static void write_and_fault(void *owner, struct crash_out *out)
{
    (void)owner;
    crash_printf(out, "before the fault\n");
    *(volatile int *)8 = 1;
    crash_printf(out, "after the fault\n");
}

/* The handler has a stack of its own; the unwinder finds none where this one was. */
static void lose_stack(void)
{
#if !SKIPPED
    __asm__ volatile("mov $4096, %rsp\n\tmov $4096, %rbp\n\tpop %rax");
#endif
}

static int setup(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/mayfly-crash-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

static _Noreturn void crash_here(const struct crash_section *sections)
{
    static char owner[] = "somebody";
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    crash_configure(&(struct crash_options){
        .enabled = true, .log_path = path, .version = "test", .owner = owner, .sections = sections,
    });
    lose_stack();
    _exit(0);
}

/* A child dies of the lost stack: what it wrote. */
static const char *report_of(const struct crash_section *sections)
{
    int status;
    pid_t child = fork();
    if (child == 0) crash_here(sections);
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_true(WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS));
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, report, sizeof report - 1);
    close(fd);
    assert_true(n > 0);
    report[n] = '\0';
    return report;
}

static void a_lost_stack_leaves_the_other_sections(void **state)
{
    (void)state;
    static const struct crash_section sections[] = {
        {"FAULTS", write_and_fault}, {"GOOD", write_nothing_wrong}, {0},
    };
    if (SKIPPED) skip();
    const char *text = report_of(sections);
    static const char *const parts[] = {
        "crashed by signal: ", "------ STACK TRACE ------", "------ REGISTERS ------", "RSP:", "------ FAULTS ------",
        "before the fault", "(The rest of this section can't be written.)", "owner: somebody", "BUG REPORT END",
    };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) { /* in this order */
        const char *at = strstr(text, parts[i]);
        if (!at) fail_msg("no \"%s\" in: %s", parts[i], report);
        text = at;
    }
    assert_null(strstr(report, "after the fault"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_lost_stack_leaves_the_other_sections, setup, teardown),
    };
    return cmocka_run_group_tests_name("crash", tests, NULL, NULL);
}
