/* The server's part of a crash report (base/crash.h): the command that was running, its client, INFO. */
#ifndef MAYFLY_SERVER_OBSERVE_CRASH_REPORT_H
#define MAYFLY_SERVER_OBSERVE_CRASH_REPORT_H

struct server;

void crash_report_apply_config(struct server *s);

#endif
