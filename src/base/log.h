/* The log, in Redis's format and levels. */
#ifndef MAYFLY_BASE_LOG_H
#define MAYFLY_BASE_LOG_H

#include "base/types.h"

enum log_level { LOG_DEBUG, LOG_VERBOSE, LOG_NOTICE, LOG_WARNING, LOG_NOTHING };

struct log {
    enum log_level level;
    const char *path; /* NULL or "": standard output; borrowed */
    bool to_syslog;   /* in addition */
    char role;        /* M primary, S replica, … as Redis marks lines */
};

void log_line(const struct log *l, enum log_level level, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
