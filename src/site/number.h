/* Numbers of counters. Integers as long as they fit, as INCR needs them, otherwise long doubles, as
 * INCRBYFLOAT. */
#ifndef MAYFLY_SITE_NUMBER_H
#define MAYFLY_SITE_NUMBER_H

#include "site/code.h"

struct site_num {
    bool real; /* else `i` holds */
    i64 i;
    long double f;
};

bool site_num_parse(bytes text, struct site_num *out); /* false: not a number */
struct site_num site_num_of(i64 i);
long double site_num_real(struct site_num n);
/* The sum; a real one if it is too large for an integer. An infinity and its opposite are 0 together. */
struct site_num site_num_add(struct site_num a, struct site_num b);
struct site_num site_num_sub(struct site_num a, struct site_num b);
void site_num_print(struct buf *to, struct site_num n); /* as INCR and INCRBYFLOAT show it */

#define SITE_NUM_MAX 80                           /* bytes of room that writing one needs */
char *site_write_num(char *p, struct site_num n); /* returns the end */
void site_put_num(struct buf *to, struct site_num n);
struct site_num site_get_num(struct site_reader *r);

#endif
