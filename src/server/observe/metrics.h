/* The Prometheus endpoint: GET /metrics on `metrics-port` of `metrics-bind`, off by default. It runs on the
 * server's own loop, and answers from counters: a scrape looks at no key. With 32 connections, the one that
 * has been idle longest is closed for a new one. */
#ifndef MAYFLY_SERVER_OBSERVE_METRICS_H
#define MAYFLY_SERVER_OBSERVE_METRICS_H

#include "base/buf.h"

struct server;
struct metrics;

/* NULL: it does not listen; the log says why. */
struct metrics *metrics_start(struct server *s, const char *address, int port);
void metrics_stop(struct metrics *m); /* NULL is fine; it is freed when the loop has closed its handle */
void metrics_cron(struct metrics *m); /* about once a second: closes idle connections */

/* Appends the reply to a scrape, in Prometheus's text format. */
void metrics_text(struct server *s, struct buf *out);

#endif
