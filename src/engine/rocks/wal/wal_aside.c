/* Moves logs where RocksDB does not replay them, without losing them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/rocks/wal/wal_verify.h"

#define NAMES_MAX 1000

/* Links a log under an unused second name: RocksDB may reuse a number. */
static bool link_aside(const char *dir, u64 log)
{
    char from[4200], to[4300];
    snprintf(from, sizeof from, "%s/%06llu.log", dir, (unsigned long long)log);
    for (int i = 0; i < NAMES_MAX; i++) {
        snprintf(to, sizeof to, "%s/" WAL_ASIDE "/%06llu.log.%d", dir, (unsigned long long)log, i);
        if (link(from, to) == 0) return true;
        if (errno != EEXIST) return false;
    }
    return false;
}

static bool unlink_log(const char *dir, u64 log)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%06llu.log", dir, (unsigned long long)log);
    return unlink(path) == 0;
}

static bool wal_aside_sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0) close(fd);
    return ok;
}

static bool move_all(const char *dir, const char *aside, const struct wal_verdict *v)
{
    const u64 *after = (const void *)v->after.p;
    size_t n = v->after.n / sizeof *after;
    bool ok = mkdir(aside, 0755) == 0 || errno == EEXIST;
    if (v->state == WAL_DAMAGED && v->log_bad) ok = ok && link_aside(dir, v->log);
    for (size_t i = 0; i < n; i++) ok = ok && link_aside(dir, after[i]);
    ok = ok && wal_aside_sync_folder(aside) && wal_aside_sync_folder(dir);
    /* The youngest first: if this is interrupted, what is left is continuous. */
    for (size_t i = n; i-- > 0;) ok = ok && unlink_log(dir, after[i]);
    return ok && wal_aside_sync_folder(dir);
}

bool wal_put_aside(const char *dir, const struct wal_verdict *v, struct buf *why)
{
    char aside[4200];
    if (v->after.n == 0 && !(v->state == WAL_DAMAGED && v->log_bad)) return true;
    snprintf(aside, sizeof aside, "%s/" WAL_ASIDE, dir);
    if (move_all(dir, aside, v)) return true;
    buf_printf(why, "RocksDB's logs can't be kept in %s: %s", aside, strerror(errno));
    return false;
}
