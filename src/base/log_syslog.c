#include "base/log_syslog.h"

#include <string.h>
#include <syslog.h>

void log_syslog_open(const char *ident, const char *facility)
{
    static const int locals[] = {LOG_LOCAL0, LOG_LOCAL1, LOG_LOCAL2, LOG_LOCAL3,
                                 LOG_LOCAL4, LOG_LOCAL5, LOG_LOCAL6, LOG_LOCAL7};
    int code = strncmp(facility, "local", 5) ? LOG_USER : locals[(facility[5] - '0') & 7];
    openlog(ident, LOG_PID | LOG_NDELAY | LOG_NOWAIT, code);
}

void log_syslog_line(int level, const char *text)
{
    static const int priorities[] = {LOG_DEBUG, LOG_INFO, LOG_NOTICE, LOG_WARNING, LOG_WARNING};
    syslog(priorities[level], "%s", text);
}
