#include "engine/rocks/wal/wal_synced.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/crc64.h"
#include "engine/rocks/codec.h"

#define MAGIC "mayfly1\n"
#define NUMBERS 8
#define SIZE (8 + 8 * NUMBERS + 8)

static int open_synced(const char *dir, int flags)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/" WAL_SYNCED_NAME, dir);
    return open(path, flags | O_CLOEXEC, 0644);
}

int wal_synced_open(const char *dir) { return open_synced(dir, O_WRONLY | O_CREAT); }

static u64 checksum(const char *raw) { return crc64(0, bytes_of(raw, SIZE - 8)); }

bool wal_synced_write(int fd, const struct wal_synced *n)
{
    char raw[SIZE];
    const u64 numbers[NUMBERS] = {n->manifest,    n->first_log, n->before, n->sealed_log,
                                  n->sealed_size, n->log,       n->size,   n->sequence};
    memcpy(raw, MAGIC, 8);
    for (u32 i = 0; i < NUMBERS; i++) put_u64(raw + 8 + 8 * i, numbers[i]);
    put_u64(raw + SIZE - 8, checksum(raw));
    return pwrite(fd, raw, SIZE, 0) == SIZE;
}

bool wal_synced_read(const char *dir, struct wal_synced *out)
{
    char raw[SIZE];
    int fd = open_synced(dir, O_RDONLY);
    if (fd < 0) return false;
    bool whole = pread(fd, raw, SIZE, 0) == SIZE;
    close(fd);
    if (!whole || memcmp(raw, MAGIC, 8) != 0 || get_u64(raw + SIZE - 8) != checksum(raw)) return false;
    u64 v[NUMBERS];
    for (u32 i = 0; i < NUMBERS; i++) v[i] = get_u64(raw + 8 + 8 * i);
    *out = (struct wal_synced){v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]};
    return true;
}
