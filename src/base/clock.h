/* Clocks. Only the loop and the server read them; lower layers receive the time as a parameter.
 *
 * Wall time is for dates: key deadlines, TIME, LASTSAVE, log entries. It may step by any amount at any
 * moment. Timeouts, intervals and ages use the monotonic clock, or the loop's (uv_now): the monotonic time at
 * which the current loop iteration began. */
#ifndef MAYFLY_BASE_CLOCK_H
#define MAYFLY_BASE_CLOCK_H

#include "base/types.h"

i64 clock_wall_ms(void);  /* Unix time */
i64 clock_wall_us(void);
i64 clock_mono_us(void);  /* since an arbitrary moment; never steps */
i64 clock_mono_ms(void);
i64 clock_thread_us(void); /* CPU time of the calling thread */

#endif
