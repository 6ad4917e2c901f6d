/* Writes replies in RESP2 or RESP3 into an output buffer. The caller chooses the meaning (a map, a set, a
 * null); the protocol version chooses the bytes.
 *
 * If the length of an aggregate is not known in advance:
 *
 *     size_t mark = reply_mark(r);
 *     …                            write the elements
 *     reply_array_at(r, mark, n);  inserts the header */
#ifndef MAYFLY_RESP_REPLY_H
#define MAYFLY_RESP_REPLY_H

#include "base/buf.h"

struct reply {
    struct buf *out;  /* borrowed */
    u8 proto;         /* 2 or 3 */
    u32 errors;       /* error replies written so far … */
    u32 counted;      /* … of these, already in the statistics: errors of commands called by a script */
    size_t error_at;  /* offset in `out` of the last error not counted yet: for errorstats */
};

void reply_ok(struct reply *r);
void reply_simple(struct reply *r, const char *s);                /* +s */
void reply_error(struct reply *r, const char *msg);               /* -msg; begins with a code: "ERR …" */
/* Line breaks in the text become spaces; those at the end are removed. */
void reply_errorf(struct reply *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
void reply_int(struct reply *r, i64 v);
void reply_bulk(struct reply *r, bytes b);
void reply_bulk_str(struct reply *r, const char *s);
void reply_bulkf(struct reply *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
void reply_bulk_int(struct reply *r, i64 v);                      /* the number as a bulk string */
void reply_double(struct reply *r, double v);                     /* bulk in RESP2, ',' in RESP3 */
void reply_bool(struct reply *r, bool v);                         /* :0/:1 in RESP2, #t/#f in RESP3 */
void reply_null(struct reply *r);                                 /* $-1 or _ */
void reply_null_array(struct reply *r);                           /* *-1 or _ */
void reply_array(struct reply *r, size_t n);
void reply_map(struct reply *r, size_t pairs);                    /* array of 2n in RESP2 */
void reply_set(struct reply *r, size_t n);                        /* array in RESP2 */
void reply_push(struct reply *r, size_t n);                       /* array in RESP2 */
void reply_attribute(struct reply *r, size_t pairs);              /* RESP3 only */
void reply_verbatim(struct reply *r, bytes b, const char *ext3);  /* bulk in RESP2 */
void reply_big_number(struct reply *r, const char *digits);

static inline size_t reply_mark(const struct reply *r) { return r->out->n; }
void reply_array_at(struct reply *r, size_t mark, size_t n);
void reply_map_at(struct reply *r, size_t mark, size_t pairs);
void reply_set_at(struct reply *r, size_t mark, size_t n);

#endif
