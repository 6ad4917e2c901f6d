/* The latency monitor: per event, the last samples above
 * latency-monitor-threshold, and the worst ever. */
#ifndef MAYFLY_SERVER_OBSERVE_LATENCY_H
#define MAYFLY_SERVER_OBSERVE_LATENCY_H

#include "base/types.h"

#define LATENCY_SAMPLES 160
#define LATENCY_EVENTS 16

struct latency_sample {
    i64 time_s;
    u32 ms;
};

struct latency_event {
    char name[32];
    struct latency_sample sample[LATENCY_SAMPLES]; /* a ring; `at` is the next to write */
    u32 at, max_ms;
};

struct latency {
    struct latency_event event[LATENCY_EVENTS];
    u32 count;
};

/* Samples of the same second are merged to the worst, as Redis does. */
void latency_add(struct latency *l, const char *event, i64 time_s, u32 ms);

#endif
