/* Periodic work, every 1/hz second. */
#ifndef MAYFLY_SERVER_CRON_H
#define MAYFLY_SERVER_CRON_H

#include "server/server.h"

void server_cron(uv_timer_t *t);

#endif
