/* The system log. Apart from log.h, because <syslog.h> has names of its own for levels. */
#ifndef MAYFLY_BASE_LOG_SYSLOG_H
#define MAYFLY_BASE_LOG_SYSLOG_H

/* The facility is "user" or "local0" … "local7". `ident` is borrowed for as long as lines are written. */
void log_syslog_open(const char *ident, const char *facility);
void log_syslog_line(int level, const char *text); /* level: enum log_level */

#endif
