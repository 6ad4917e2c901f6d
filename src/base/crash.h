/* The crash report: written to the log when the process dies of SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGABRT,
 * of a failed CHECK, or out of memory. It contains the signal, the registers, a backtrace and sections added
 * by the owner. Then the process raises the same signal with its default action, so that a core dump is
 * possible.
 *
 * The faulting thread writes the report; the main thread uses an alternate stack for it. Other threads may
 * keep running. The report uses async-signal-safe calls only, except for the backtrace and the owner's
 * sections, which may do anything: a section that faults or hangs is cut off, and the report continues with
 * the next one.
 *
 * Sanitizer builds install no handlers: the sanitizer's own report is better. */
#ifndef MAYFLY_BASE_CRASH_H
#define MAYFLY_BASE_CRASH_H

#include <signal.h>

#include "base/bytes.h"

/* Destination of the report. Output beyond `left` bytes is dropped. */
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
    bool exit_on_panic;     /* crash_panic exits with status 1 instead of aborting */
    const char *log_path;   /* NULL or "": standard output */
    const char *pidfile;    /* unlinked after the report; NULL or "": none */
    const char *version;
    void *owner;
    const struct crash_section *sections; /* terminated by one without a title */
};

/* Called by the main thread at start and when an option changes. Strings are copied. */
void crash_configure(const struct crash_options *o);

/* Ends the process because of a bug: logs the text, which may have several lines, then the report. */
_Noreturn void crash_panic(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* Software watchdog: logs a backtrace of the main thread unless called again within `ms`. 0 turns it off. */
void crash_watchdog(i64 ms);

/* -- crash_trace.c -------------------------------------------------------------------------------------- */

void crash_trace_prepare(void); /* loads the unwinder, so that the first backtrace does not allocate */
void crash_write_registers(struct crash_out *out, const ucontext_t *context);
void crash_write_backtrace(struct crash_out *out, const ucontext_t *context);
void *crash_instruction(const ucontext_t *context); /* the program counter; NULL: unknown */

#endif
