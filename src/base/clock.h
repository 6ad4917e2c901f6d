/* The clocks. Only the loop and the server read them; everything below gets
 * the time handed in. */
#ifndef MAYFLY_BASE_CLOCK_H
#define MAYFLY_BASE_CLOCK_H

#include "base/types.h"

i64 clock_wall_ms(void);  /* Unix time */
i64 clock_wall_us(void);
i64 clock_mono_us(void);  /* for measuring durations */
i64 clock_thread_us(void); /* CPU time of the calling thread */

#endif
