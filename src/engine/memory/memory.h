/* The memory engine: native structures behind the typed primitives. */
#ifndef MAYFLY_ENGINE_MEMORY_MEMORY_H
#define MAYFLY_ENGINE_MEMORY_MEMORY_H

#include "engine/engine.h"

/* seed keys the hash tables, so that clients cannot prepare collisions. */
struct engine *memory_engine_new(u32 databases, u64 seed);

#endif
