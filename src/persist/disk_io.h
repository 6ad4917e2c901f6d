/* System calls retried until complete. False: see errno. */
#ifndef MAYFLY_PERSIST_DISK_IO_H
#define MAYFLY_PERSIST_DISK_IO_H

#include "base/bytes.h"

NODISCARD bool disk_write(int fd, bytes b); /* all of it, at the file's position */
NODISCARD bool disk_sync(int fd);           /* fsync */
NODISCARD bool disk_sync_folder_of(const char *path);

#endif
