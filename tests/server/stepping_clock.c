/* Preloaded into a server: wall time is that of the machine plus the seconds in the file CLOCK_STEP_FILE, which
 * a test changes while the server runs. Other clocks are left alone. No dlsym: jemalloc asks for the time before
 * anything can be resolved. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long *step;

__attribute__((constructor)) static void open_step(void)
{
    const char *path = getenv("CLOCK_STEP_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *step, PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (at != MAP_FAILED) step = at;
}

int clock_gettime(clockid_t id, struct timespec *t)
{
    long result = syscall(SYS_clock_gettime, id, t);
    if (result == 0 && step && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += *step;
    return (int)result;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone)
{
    struct timespec t;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    *to = (struct timeval){t.tv_sec, t.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *to)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (to) *to = t.tv_sec;
    return t.tv_sec;
}
