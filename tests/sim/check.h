/* A linearizability checker for one object with a deadline (Wing and Gong's search with Lowe's memory of states).
 *
 * The object is a register that may expire. Every operation says at which time (`time_ms`) the server ran it, so the
 * model is exact: at that time the object is dead if its deadline has come, and once an operation has found it dead
 * it stays dead until it is written again. An operation whose outcome its client never learned may have happened at
 * any moment after its start, or not at all. */
#ifndef MAYFLY_TESTS_SIM_CHECK_H
#define MAYFLY_TESTS_SIM_CHECK_H

#include "base/types.h"

enum op_type { OP_GET, OP_SET, OP_SET_NX, OP_SET_XX, OP_GETSET, OP_INCR, OP_DEL, OP_TYPES };

struct check_op {
    enum op_type type;
    u64 value, ttl_ms; /* arguments; ttl 0: no deadline */
    u64 time_ms;       /* when the server ran it, by its own account */
    u64 start_us, end_us; /* end UINT64_MAX: no reply */
    bool found;        /* the reply: it existed (for a conditional SET: it was done) */
    u64 found_value;
    bool stuck; /* after a violation: could not be placed by the attempt that came furthest */
    u64 hint; /* a guess of the order, which makes the search short and changes no verdict */
};

enum check_verdict { CHECK_OK, CHECK_VIOLATION, CHECK_UNDECIDED };

/* Sorts ops. At most CHECK_OPS_MAX. */
enum { CHECK_OPS_MAX = 256 };
enum check_verdict check_object(struct check_op *ops, u32 n);
void check_print(const struct check_op *ops, u32 n);

#endif
