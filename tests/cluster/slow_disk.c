/* Preloaded into a server: every fsync and fdatasync takes longer by the milliseconds in the file SLOW_DISK_FILE, which a test
 * changes while the server runs. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile long *delay_ms;

__attribute__((constructor)) static void open_delay(void)
{
    const char *path = getenv("SLOW_DISK_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *delay_ms, PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (at != MAP_FAILED) delay_ms = at;
}

static void wait_first(void)
{
    long ms = delay_ms ? *delay_ms : 0;
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    if (ms) nanosleep(&t, NULL);
}

int fsync(int fd)
{
    wait_first();
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    wait_first();
    return (int)syscall(SYS_fdatasync, fd);
}
