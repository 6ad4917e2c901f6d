/* Reads a file through a window that grows as needed. */
#ifndef MAYFLY_PERSIST_AOF_READ_H
#define MAYFLY_PERSIST_AOF_READ_H

#include "base/bytes.h"

struct aof_reader {
    int fd;
    u64 size; /* of the file */
    u64 end;  /* where reading ends: size, or less after aof_reader_trim */
    u64 at;   /* offset of the window in the file */
    char *window;
    size_t n, cap;
    int error; /* errno of a failed read; sticky */
};

#define AOF_WINDOW (1u << 20)

NODISCARD bool aof_reader_open(struct aof_reader *r, const char *path); /* false: see errno */
void aof_reader_close(struct aof_reader *r);

/* The bytes at `offset`: at least `want`, unless the end is nearer or reading fails. Valid until the next
 * call. */
bytes aof_reader_at(struct aof_reader *r, u64 offset, size_t want);

/* Ignores zero bytes at the end, down to `from`: a power cut may leave them in place of data. */
void aof_reader_trim(struct aof_reader *r, u64 from);

#endif
