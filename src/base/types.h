/* Fixed-width type names and the few macros used in every layer. */
#ifndef MAYFLY_BASE_TYPES_H
#define MAYFLY_BASE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t i32;
typedef int64_t i64;
typedef unsigned long long ull; /* what printf's %llu takes */

#define NODISCARD __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))
#define UNUSED __attribute__((unused))
#define ALWAYS_INLINE inline __attribute__((always_inline)) /* hot: on the path of every request */
#define COLD __attribute__((cold, noinline))                /* kept out of the hot path's code */
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
/* clang-format off: token for token as in <sys/param.h>, which libuv includes */
#define MIN(a,b) (((a)<(b))?(a):(b))
#define MAX(a,b) (((a)>(b))?(a):(b))
/* clang-format on */

#endif
