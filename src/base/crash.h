/* What the process writes to its log when it dies: of SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGABRT, of a failed
 * CHECK, or because memory ran out. The report has the signal, the registers, a backtrace, and sections that
 * its owner adds; then the process dies of that very signal, so that there can be a core dump.
 *
 * It is written by the thread that died, on an alternate stack where that is the main thread, while others
 * may continue. It uses only what is safe in a signal handler, but for the backtrace and the owner's
 * sections, which may do anything: one that faults or hangs is cut off there, and the report continues with
 * the next.
 *
 * Builds with a sanitizer install no handlers: the sanitizer's own report is better. */
#ifndef MAYFLY_BASE_CRASH_H
#define MAYFLY_BASE_CRASH_H

#include <signal.h>

#include "base/bytes.h"

/* Where the report goes. What exceeds its bound is left out. */
struct crash_out {
    int fd;
    size_t left;
};

void crash_write(struct crash_out *out, bytes text);
void crash_printf(struct crash_out *out, const char *fmt, ...) PRINTF_LIKE(2, 3);

struct crash_section {
    const char *title;
    void (*write)(void *owner, struct crash_out *out);
};

struct crash_options {
    bool enabled;
    bool exit_on_panic;     /* crash_panic: exit with 1 rather than abort */
    const char *log_path;   /* NULL or "": standard output */
    const char *pidfile;    /* removed at the end; NULL or "": none */
    const char *version;
    void *owner;
    const struct crash_section *sections; /* ended by one without a title */
};

/* By the main thread, at start and whenever an option has changed. The texts are copied. */
void crash_configure(const struct crash_options *o);

/* Ends the process because of an error in the program: logs the text, which may have several lines, and the
 * report. */
_Noreturn void crash_panic(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* Writes a backtrace of the main thread to the log unless called again within so many milliseconds; 0: no
 * more. */
void crash_watchdog(i64 ms);

/* -- crash_trace.c -------------------------------------------------------------------------------------- */

void crash_trace_prepare(void); /* so that the first backtrace allocates nothing */
void crash_write_registers(struct crash_out *out, const ucontext_t *context);
void crash_write_backtrace(struct crash_out *out, const ucontext_t *context);
void *crash_instruction(const ucontext_t *context); /* that was being run; NULL: not known */

#endif
