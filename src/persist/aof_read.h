/* A file read through a window that is as wide as it has to be. */
#ifndef MAYFLY_PERSIST_AOF_READ_H
#define MAYFLY_PERSIST_AOF_READ_H

#include "base/bytes.h"

struct aof_reader {
    int fd;
    u64 size; /* of the file */
    u64 end;  /* where reading ends: size, or less by aof_reader_trim */
    u64 at;   /* the window's place in the file */
    char *window;
    size_t n, cap;
    int error; /* errno of a read that failed, for good */
};

#define AOF_WINDOW (1u << 20)

NODISCARD bool aof_reader_open(struct aof_reader *r, const char *path); /* false: errno tells */
void aof_reader_close(struct aof_reader *r);

/* The bytes at `offset`: `want` of them or more, if the end is not nearer. Fewer also if reading fails. They
 * stay until the next call. */
bytes aof_reader_at(struct aof_reader *r, u64 offset, size_t want);

/* Takes zero bytes off the end, down to `from`: a power cut may leave them where data should have come. */
void aof_reader_trim(struct aof_reader *r, u64 from);

#endif
