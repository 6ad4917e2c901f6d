#include "base/clock.h"

#include <time.h>

static i64 read_us(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (i64)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

i64 clock_wall_us(void) { return read_us(CLOCK_REALTIME); }
i64 clock_wall_ms(void) { return read_us(CLOCK_REALTIME) / 1000; }
i64 clock_mono_us(void) { return read_us(CLOCK_MONOTONIC); }
i64 clock_mono_ms(void) { return read_us(CLOCK_MONOTONIC) / 1000; }
i64 clock_thread_us(void) { return read_us(CLOCK_THREAD_CPUTIME_ID); }
