/* See daemon.h. systemd is notified without its library: a notification is one datagram to the socket that
 * $NOTIFY_SOCKET names. */
#include "server/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define DEFAULT_PIDFILE "/var/run/mayfly.pid"

/* -- systemd and upstart -------------------------------------------------------------- */

/* 0, or an errno. A name that starts with '@' is in the abstract namespace. */
static int send_notification(const char *path, const char *state)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if ((*path != '/' && *path != '@') || n >= sizeof to.sun_path) return EINVAL;
    memcpy(to.sun_path, path, n);
    if (*path == '@') to.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, size);
    int code = sent < 0 ? errno : 0;
    close(fd);
    return code;
}

static void notify(const struct config *c, const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    bool wanted = !strcmp(c->supervised.p, "systemd") || !strcmp(c->supervised.p, "auto");
    if (wanted && path) (void)send_notification(path, state);
}

static bool begin_systemd(const struct log *log)
{
    const char *path = getenv("NOTIFY_SOCKET");
    if (!path) {
        log_line(log, LOG_WARNING, "systemd supervision error: NOTIFY_SOCKET not found!");
        return false;
    }
    int code = send_notification(path, "STATUS=Mayfly is starting...\n");
    if (code) {
        log_line(log, LOG_WARNING, "systemd supervision error: sd_notify: %s", strerror(code));
        return false;
    }
    return true;
}

/* upstart waits for the process to stop itself, once. */
static bool begin_upstart(const struct log *log)
{
    if (!getenv("UPSTART_JOB")) {
        log_line(log, LOG_WARNING, "upstart supervision requested, but UPSTART_JOB not found!");
        return false;
    }
    log_line(log, LOG_NOTICE, "supervised by upstart, will stop to signal readiness.");
    raise(SIGSTOP);
    unsetenv("UPSTART_JOB");
    return true;
}

static bool begin_supervised(const struct config *c, const struct log *log)
{
    const char *how = c->supervised.p;
    if (!strcmp(how, "systemd")) return begin_systemd(log);
    if (!strcmp(how, "upstart")) return begin_upstart(log);
    if (strcmp(how, "auto") != 0) return false;
    if (getenv("UPSTART_JOB")) return begin_upstart(log);
    return getenv("NOTIFY_SOCKET") && begin_systemd(log);
}

/* -- the background ----------------------------------------------------------------------- */

static bool go_to_background(const struct log *log)
{
    pid_t child = fork();
    if (child < 0) {
        log_line(log, LOG_WARNING, "Can't daemonize: fork: %s", strerror(errno));
        return false;
    }
    if (child > 0) _exit(0);
    setsid();
    int fd = open("/dev/null", O_RDWR);
    if (fd < 0) return true;
    for (int std = STDIN_FILENO; std <= STDERR_FILENO; std++) dup2(fd, std);
    if (fd > STDERR_FILENO) close(fd);
    return true;
}

bool daemon_begin(struct config *c, const struct log *log)
{
    bool supervised = begin_supervised(c, log);
    if (!c->daemonize || supervised) return true;
    if (c->pidfile.n == 0) config_text(&c->pidfile, BYTES_LIT(DEFAULT_PIDFILE));
    return go_to_background(log);
}

/* -- ready, and stopping --------------------------------------------------------------------- */

static void write_pidfile(const struct config *c, const struct log *log)
{
    FILE *f = fopen(c->pidfile.p, "w");
    if (!f) {
        log_line(log, LOG_WARNING, "Failed to write PID file: %s", strerror(errno));
        return;
    }
    fprintf(f, "%d\n", (int)getpid());
    fclose(f);
}

void daemon_write_pid(const struct config *c, const struct log *log)
{
    if (c->pidfile.n) write_pidfile(c, log);
}

void daemon_ready(const struct config *c)
{
    notify(c, "STATUS=Ready to accept connections\nREADY=1\n");
}

void daemon_end(const struct config *c)
{
    notify(c, "STATUS=Stopping\nSTOPPING=1\n");
    if (c->pidfile.n) unlink(c->pidfile.p);
}
