/* Synchronous disk I/O, and crash points for tests. */
#include "persist/disk_io.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "persist/disk_file.h"

bool disk_write(int fd, bytes b)
{
    while (b.n) {
        ssize_t n = write(fd, b.p, b.n);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC; /* nothing written and no error: a retry would not help */
        if (n <= 0) return false;
        b = bytes_of(b.p + n, b.n - (size_t)n);
    }
    return true;
}

bool disk_sync(int fd)
{
    int result;
    do result = fsync(fd);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

bool disk_sync_folder(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return false;
    bool ok = disk_sync(fd) || errno == EINVAL || errno == EBADF; /* some file systems don't sync folders */
    int why = errno;
    close(fd);
    errno = why;
    return ok;
}

bool disk_sync_folder_of(const char *path)
{
    struct buf dir = {0};
    const char *slash = strrchr(path, '/');
    buf_append(&dir, path, slash ? (size_t)(slash - path) : 0);
    if (!slash) buf_append_char(&dir, '.');
    else if (slash == path) buf_append_char(&dir, '/');
    buf_append_char(&dir, '\0');
    bool ok = disk_sync_folder(dir.p);
    int why = errno;
    buf_release(&dir);
    errno = why;
    return ok;
}

/* -- small files --------------------------------------------------------------------------------- */

static bool write_synced(const char *path, bytes content)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return false;
    bool ok = disk_write(fd, content);
    if (ok) crash_point("replace-written");
    ok = ok && disk_sync(fd);
    int why = errno;
    if (close(fd) != 0 && errno != EINTR && ok) {
        why = errno;
        ok = false;
    }
    errno = why;
    return ok;
}

static bool replace(const char *dir, const char *temp, const char *path, bytes content)
{
    bool ok = write_synced(temp, content);
    if (ok) crash_point("replace-synced");
    ok = ok && rename(temp, path) == 0;
    if (!ok) {
        int why = errno;
        unlink(temp);
        errno = why;
        return false;
    }
    crash_point("replace-renamed");
    ok = disk_sync_folder(dir);
    if (ok) crash_point("replace-folder-synced");
    return ok;
}

bool disk_replace(const char *dir, const char *name, bytes content)
{
    struct buf temp = {0}, path = {0};
    buf_printf(&temp, "%s/temp-%s", dir, name);
    buf_printf(&path, "%s/%s", dir, name);
    buf_append_char(&temp, '\0');
    buf_append_char(&path, '\0');
    bool ok = replace(dir, temp.p, path.p, content);
    int why = errno;
    buf_release(&temp);
    buf_release(&path);
    errno = why;
    return ok;
}

/* -- crash points -------------------------------------------------------------------------------- */

/* MAYFLY_CRASH_AT as it was at the first crash point passed; for tests, and the same for the whole
 * process. */
static struct {
    pthread_once_t once;
    char name[64];
    atomic_long left;
} crash_plan = {.once = PTHREAD_ONCE_INIT};

static void read_crash_plan(void)
{
    const char *plan = getenv("MAYFLY_CRASH_AT");
    if (!plan) return;
    size_t n = strcspn(plan, ":");
    if (n >= sizeof crash_plan.name) return;
    memcpy(crash_plan.name, plan, n);
    atomic_store(&crash_plan.left, plan[n] == ':' ? atol(plan + n + 1) : 1);
}

void crash_point(const char *name)
{
    pthread_once(&crash_plan.once, read_crash_plan);
    if (!crash_plan.name[0] || strcmp(name, crash_plan.name) != 0) return;
    if (atomic_fetch_sub(&crash_plan.left, 1) == 1) kill(getpid(), SIGKILL);
}
