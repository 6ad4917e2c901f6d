#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log_syslog.h"

void log_line(const struct log *l, enum log_level level, const char *fmt, ...)
{
    if (level < l->level) return;
    char text[1024], stamp[64];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    i64 us = clock_wall_us();
    time_t seconds = (time_t)(us / 1000000);
    struct tm tm;
    localtime_r(&seconds, &tm);
    strftime(stamp, sizeof stamp, "%d %b %Y %H:%M:%S", &tm);
    /* Opened for each line, so that log rotation needs no signal. */
    bool to_file = l->path && *l->path;
    FILE *f = to_file ? fopen(l->path, "a") : stdout;
    if (!f) return;
    fprintf(f, "%d:%c %s.%03d %c %s\n", (int)getpid(), l->role ? l->role : 'M', stamp,
            (int)(us / 1000 % 1000), ".-*#"[level], text);
    if (to_file) fclose(f);
    else fflush(f);
    if (l->to_syslog) log_syslog_line((int)level, text);
}
