/* Error codes of the layers below the commands, and CHECK for invariants. Commands translate the codes into
 * Redis's error texts; lower layers write no text. */
#ifndef MAYFLY_BASE_ERR_H
#define MAYFLY_BASE_ERR_H

#include "base/types.h"

typedef enum err {
    OK = 0,
    ERR_NOT_FOUND = -1, /* no such key, member or index */
    ERR_TYPE = -2,      /* the key holds another type */
    ERR_SYNTAX = -4,    /* malformed input */
    ERR_AGAIN = -5,     /* more input is needed */
    ERR_LIMIT = -7,     /* a configured bound would be exceeded */
} err;

_Noreturn void check_failed(const char *what, const char *file, int line);

/* A broken invariant stops the process, in release builds too: continuing would turn a bug into wrong
 * data. */
#define CHECK(cond)                                             \
    do {                                                        \
        if (UNLIKELY(!(cond))) check_failed(#cond, __FILE__, __LINE__); \
    } while (0)

#endif
