/* The engine suite: one set of tests that every engine passes. Each primitive of
 * engine.h is checked against a simple model under seeded random operations. */
#ifndef MAYFLY_TESTS_ENGINE_SUITE_H
#define MAYFLY_TESTS_ENGINE_SUITE_H

#include "engine/engine.h"

typedef struct engine *(*engine_open_fn)(u32 databases, u64 seed);

/* Runs everything on engines made by open; returns the number of failures. */
int engine_suite(engine_open_fn open);
int snapshot_suite(engine_open_fn open); /* parts of it: suite_snapshot.c … */
int staging_suite(engine_open_fn open);
int forecast_suite(engine_open_fn open);
int companion_suite(engine_open_fn open);

#endif
