/* The clocks. Only the loop and the server read them; everything below gets
 * the time handed in.
 *
 * Wall time is for what has a date: deadlines of keys, TIME, LASTSAVE, entries of logs. It may step by any
 * amount at any moment. Timeouts, intervals and ages are measured on the monotonic clock, or on the
 * loop's (uv_now), which is the same one as of the beginning of the turn. */
#ifndef MAYFLY_BASE_CLOCK_H
#define MAYFLY_BASE_CLOCK_H

#include "base/types.h"

i64 clock_wall_ms(void);  /* Unix time */
i64 clock_wall_us(void);
i64 clock_mono_us(void);  /* since some moment in the past; never steps */
i64 clock_mono_ms(void);
i64 clock_thread_us(void); /* CPU time of the calling thread */

#endif
