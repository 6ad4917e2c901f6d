/* Numbers in text, exactly as Redis reads and writes them. */
#ifndef MAYFLY_BASE_NUM_H
#define MAYFLY_BASE_NUM_H

#include "base/bytes.h"
#include "base/err.h"

#define NUM_I64_LEN 21    /* room for any i64 in decimal, with a NUL */
#define NUM_DOUBLE_LEN 5120 /* room for any long double in human form, with a NUL */

/* Strict: accepts only what num_print_i64 produces ("+1", "01", " 1" fail). */
bool num_parse_i64(bytes s, i64 *out);

/* Accepts what Redis's getDoubleFromObject accepts: inf, hex and exponents, but no empty string, leading
 * space, trailing bytes or NaN. */
bool num_parse_double(bytes s, double *out);
bool num_parse_long_double(bytes s, long double *out);

/* Writes decimal digits to buf (at least NUM_I64_LEN bytes). Returns the length. */
size_t num_print_i64(char *buf, i64 v);

/* The shortest text that reads back as v, which is finite and not 0 (shortest.c). buf: at least 64 bytes. */
size_t num_print_shortest(char *buf, double v);

/* As Redis prints a score in a reply: integers up to half the range of i64 as integers, others in the
 * shortest form; 0, -0, inf, -inf, nan. buf: at least 64 bytes. */
size_t num_print_double(char *buf, double v);

/* As Redis stores a score in a small sorted set, and passes a script's number as an argument: like
 * num_print_double, but -0 is 0. */
size_t num_print_packed_score(char *buf, double v);

/* As INCRBYFLOAT stores it: %.17Lf without trailing zeros. buf at least NUM_DOUBLE_LEN. */
size_t num_print_long_double(char *buf, long double v);

/* Parses a memory size as in the configuration: "100", "1k" (1000), "1kb" (1024), "2gb" … */
bool num_parse_memory(bytes s, u64 *out);

#endif
