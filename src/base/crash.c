#include "base/crash.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CRASH_HANDLERS 0
#else
#define CRASH_HANDLERS 1
#endif

#define STACK_BYTES (256u << 10)
#define REPORT_BYTES (256u << 10) /* maximum size of a report */
#define SECTION_SECONDS 3         /* maximum time for a section */
#define PATH_BYTES 4096

static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

/* Global, because a signal handler has no other way to find it. */
static struct {
    bool enabled, exit_on_panic;
    char log_path[PATH_BYTES], pidfile[PATH_BYTES], version[64];
    void *owner;
    const struct crash_section *sections;
    pid_t main_thread;      /* 0: not configured */
    void *stack;
    bool watched;

    atomic_int reporter;    /* the thread writing the report; 0: none */
    char panic[1024];       /* the text of crash_panic; "": none */
    volatile sig_atomic_t guarded; /* a section is being written; a fault in it jumps to … */
    sigjmp_buf escape;      /* … this point */
} crash_state;

static pid_t thread_id(void) { return (pid_t)syscall(SYS_gettid); }

/* -- output --------------------------------------------------------------------------------------------- */

void crash_write(struct crash_out *out, bytes text)
{
    text.n = MIN(text.n, out->left);
    out->left -= text.n;
    while (text.n) {
        ssize_t n = write(out->fd, text.p, text.n);
        if (n <= 0) return;
        text = bytes_of(text.p + n, text.n - (size_t)n);
    }
}

void crash_printf(struct crash_out *out, const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n > 0) crash_write(out, bytes_of(text, MIN((size_t)n, sizeof text - 1)));
}

static struct crash_out crash_open_log(void)
{
    struct crash_out out = {crash_state.main_thread ? STDOUT_FILENO : STDERR_FILENO, REPORT_BYTES};
    if (!crash_state.log_path[0]) return out;
    int fd = open(crash_state.log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0) out.fd = fd;
    return out;
}

/* -- the report ----------------------------------------------------------------------------------------- */

static void crash_write_head(struct crash_out *out, int sig, const siginfo_t *info, const ucontext_t *context)
{
    char name[17] = "";
    prctl(PR_GET_NAME, name);
    crash_printf(out, "\n\n=== MAYFLY BUG REPORT START: Cut & paste starting from here ===\n");
    if (crash_state.panic[0]) crash_printf(out, "%s\n", crash_state.panic);
    crash_printf(out, "%d # %s crashed by signal: %d (%s), si_code: %d, at Unix time %lld\n", (int)getpid(),
                 crash_state.version, sig, sigabbrev_np(sig), info->si_code, (long long)time(NULL));
    if (info->si_code <= 0) { /* kill() by a process, or our own abort() */
        crash_printf(out, "Killed by PID: %ld, UID: %d\n", (long)info->si_pid, (int)info->si_uid);
    } else {
        crash_printf(out, "Accessing address: %p\n", info->si_addr);
    }
    crash_printf(out, "Crashed running the instruction at: %p\n", crash_instruction(context));
    crash_printf(out, "Thread: %d (%s)%s\n", (int)thread_id(), name,
                 thread_id() == crash_state.main_thread ? ", the main thread" : "");
}

/* A fault or a timeout ends the section: see on_fault and on_alarm. */
static void write_section(struct crash_out *out, const struct crash_section *s, void *arg)
{
    crash_printf(out, "\n------ %s ------\n", s->title);
    if (sigsetjmp(crash_state.escape, 1)) {
        crash_printf(out, "\n(The rest of this section can't be written.)\n");
    } else {
        crash_state.guarded = 1;
        alarm(SECTION_SECONDS);
        s->write(arg, out);
    }
    alarm(0);
    crash_state.guarded = 0;
}

static void write_frames(void *context, struct crash_out *out)
{
    crash_write_backtrace(out, context);
    crash_printf(out, "------ STACK TRACE DONE ------\n");
}

static void write_registers(void *context, struct crash_out *out) { crash_write_registers(out, context); }

/* Guarded like the owner's sections: unwinding a damaged stack may fault, or deadlock on a lock this thread
 * holds. */
static const struct crash_section context_sections[] = {
    {"STACK TRACE", write_frames}, {"REGISTERS", write_registers}, {0},
};

static _Noreturn void die(int sig)
{
    sigset_t set;
    if (crash_state.pidfile[0]) unlink(crash_state.pidfile);
    if (crash_state.panic[0] && crash_state.exit_on_panic) _exit(1);
    signal(sig, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, sig);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    syscall(SYS_tgkill, getpid(), thread_id(), sig);
    _exit(128 + sig);
}

/* The first thread that faults writes the report; others that fault wait for the process to end. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
    int reporter = 0;
    if (!atomic_compare_exchange_strong(&crash_state.reporter, &reporter, thread_id())) {
        while (reporter != thread_id()) pause();
        if (crash_state.guarded) siglongjmp(crash_state.escape, 1);
        die(sig);
    }
    struct crash_out out = crash_open_log();
    crash_write_head(&out, sig, info, context);
    for (const struct crash_section *s = context_sections; s->title; s++) write_section(&out, s, context);
    for (const struct crash_section *s = crash_state.sections; s && s->title; s++)
        write_section(&out, s, crash_state.owner);
    out.left += 1024; /* reserve for the closing lines */
    crash_printf(&out,
                 "\n=== MAYFLY BUG REPORT END. Make sure to include from START to END. ===\n"
                 "       Please report the crash, with this report, to where you got Mayfly from.\n"
                 "       A name+offset of the trace is a line of the source to addr2line -e BINARY.\n\n");
    die(sig);
}

_Noreturn void crash_panic(const char *fmt, ...)
{
    char text[sizeof crash_state.panic];
    va_list ap;
    if (atomic_load(&crash_state.reporter) == thread_id() && crash_state.guarded)
        siglongjmp(crash_state.escape, 1);
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (atomic_load(&crash_state.reporter)) abort();
    memcpy(crash_state.panic, text, sizeof text);
    if (!crash_state.enabled || !CRASH_HANDLERS) { /* otherwise the report contains the text */
        struct crash_out out = crash_open_log();
        crash_printf(&out, "%d # %s\n", (int)getpid(), text);
        if (crash_state.exit_on_panic) _exit(1);
    }
    abort();
}

/* -- hanging -------------------------------------------------------------------------------------------- */

static bool is_ours(int *thread)
{
    *thread = atomic_load(&crash_state.reporter);
    if (!*thread) *thread = crash_state.main_thread;
    return *thread == thread_id();
}

/* The kernel delivers SIGALRM to any thread. It is forwarded to the reporting thread, or to the main
 * thread. */
static void on_alarm(int sig, siginfo_t *info UNUSED, void *context)
{
    int thread;
    if (!is_ours(&thread)) {
        syscall(SYS_tgkill, getpid(), thread, sig);
        return;
    }
    if (atomic_load(&crash_state.reporter)) {
        if (crash_state.guarded) siglongjmp(crash_state.escape, 1);
        return;
    }
    struct crash_out out = crash_open_log();
    crash_printf(&out, "\n--- %s ---\n",
                 crash_state.watched ? "WATCHDOG TIMER EXPIRED" : "Received SIGALRM");
    crash_printf(&out, "\n------ %s ------\n", context_sections[0].title);
    write_frames(context, &out);
}

void crash_watchdog(i64 ms)
{
    if (!ms && !crash_state.watched) return;
    struct timeval in = {ms / 1000, ms % 1000 * 1000};
    crash_state.watched = ms > 0;
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value = in}, NULL);
}

/* -- configuration -------------------------------------------------------------------------------------- */

static void use_own_stack(void)
{
    if (crash_state.stack) return;
    void *p = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return; /* handlers use the thread's own stack: fails on its overflow only */
    crash_state.stack = p;
    sigaltstack(&(stack_t){.ss_sp = p, .ss_size = STACK_BYTES}, NULL);
}

static void handle(int sig, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction a = {.sa_flags = SA_SIGINFO | SA_ONSTACK | flags};
    sigemptyset(&a.sa_mask);
    a.sa_sigaction = handler;
    sigaction(sig, &a, NULL);
}

static void crash_copy_text(char *to, size_t room, const char *text)
{
    snprintf(to, room, "%s", text ? text : "");
}

void crash_configure(const struct crash_options *o)
{
    crash_copy_text(crash_state.log_path, sizeof crash_state.log_path, o->log_path);
    crash_copy_text(crash_state.pidfile, sizeof crash_state.pidfile, o->pidfile);
    crash_copy_text(crash_state.version, sizeof crash_state.version, o->version);
    crash_state.enabled = o->enabled;
    crash_state.exit_on_panic = o->exit_on_panic;
    crash_state.owner = o->owner;
    crash_state.sections = o->sections;
    crash_state.main_thread = thread_id();
    if (!CRASH_HANDLERS) return;
    crash_trace_prepare();
    use_own_stack();
    handle(SIGALRM, on_alarm, SA_RESTART);
    for (u32 i = 0; i < ARRAY_LEN(faults); i++) {
        if (o->enabled) handle(faults[i], on_fault, SA_NODEFER);
        else signal(faults[i], SIG_DFL);
    }
}
