/* The system log. Separate from log.h, because <syslog.h> defines its own names for log levels. */
#ifndef MAYFLY_BASE_LOG_SYSLOG_H
#define MAYFLY_BASE_LOG_SYSLOG_H

/* The facility is "user" or "local0" … "local7". `ident` is borrowed until the last line is written. */
void log_syslog_open(const char *ident, const char *facility);
void log_syslog_line(int level, const char *text); /* level: enum log_level */

#endif
