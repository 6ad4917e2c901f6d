/* The title replaces the arguments and the environment, which are adjacent on the stack, and whose bytes
 * /proc/PID/cmdline shows. */
#include "server/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "server/server.h"

extern char **environ;

/* -- the title ----------------------------------------------------------------------------------------- */

/* The end of the strings that are adjacent in memory. */
static char *end_of_strings(char *at, char **strings)
{
    for (; *strings; strings++)
        if (*strings == at) at = *strings + strlen(*strings) + 1;
    return at;
}

static bool move_environment(void)
{
    size_t n = 0;
    while (environ[n]) n++;
    char **moved = calloc(n + 1, sizeof *moved);
    for (size_t i = 0; moved && i < n; i++) moved[i] = strdup(environ[i]);
    if (moved) environ = moved; /* libc uses it from now on: never freed */
    return moved;
}

void process_init(struct process *p, int argc, char **argv)
{
    if (argc < 1 || !argv[0]) return;
    char *end = end_of_strings(end_of_strings(argv[0], argv), environ);
    const char *slash = strrchr(argv[0], '/');
    p->name = strdup(argv[0]); /* libc uses it, too: not freed either */
    if (!p->name || !move_environment()) return;
    program_invocation_name = p->name;
    program_invocation_short_name = slash ? p->name + (slash + 1 - argv[0]) : p->name;
    p->title = argv[0];
    p->title_room = (size_t)(end - argv[0]);
}

static void put_address(const struct config *c, struct buf *to)
{
    i64 port = c->port ? c->port : c->tls_port;
    if (!port) {
        buf_append_bytes(to, buf_bytes(&c->unixsocket));
        return;
    }
    bytes first = buf_bytes(&c->bind);
    const char *blank = first.n ? memchr(first.p, ' ', first.n) : NULL;
    if (blank) first.n = (size_t)(blank - first.p);
    if (first.n && *first.p == '-') first = bytes_of(first.p + 1, first.n - 1);
    if (first.n) buf_append_bytes(to, first);
    else buf_append_char(to, '*');
    buf_printf(to, ":%lld", (long long)port);
}

static void put_variable(const struct server *s, bytes name, struct buf *to)
{
    const struct config *c = &s->config;
    if (bytes_is(name, "title")) buf_append_bytes(to, bytes_str(s->process.name));
    else if (bytes_is(name, "listen-addr")) put_address(c, to);
    else if (bytes_is(name, "port")) buf_printf(to, "%lld", (long long)c->port);
    else if (bytes_is(name, "tls-port")) buf_printf(to, "%lld", (long long)c->tls_port);
    else if (bytes_is(name, "unixsocket")) buf_append_bytes(to, buf_bytes(&c->unixsocket));
    else if (bytes_is(name, "config-file")) buf_append_bytes(to, buf_bytes(&c->file));
    /* server-mode: no cluster, no sentinel */
}

/* The template was checked when it was set: every '{' begins a variable, except in "{{". */
static void expand(const struct server *s, struct buf *to)
{
    bytes t = buf_bytes(&s->config.proc_title_template);
    for (size_t i = 0; i < t.n; i++) {
        const char *end = t.p[i] == '{' ? memchr(t.p + i, '}', t.n - i) : NULL;
        bool doubled = t.p[i] == '{' && i + 1 < t.n && t.p[i + 1] == '{';
        if (!end || doubled) {
            buf_append_char(to, t.p[i]);
            i += doubled;
            continue;
        }
        put_variable(s, bytes_of(t.p + i + 1, (size_t)(end - t.p) - i - 1), to);
        i = (size_t)(end - t.p);
    }
    while (to->n && to->p[to->n - 1] == ' ') to->n--;
}

static void set_title(struct server *s)
{
    struct process *p = &s->process;
    struct buf text = {0};
    if (!p->title || !s->config.set_proc_title) return;
    expand(s, &text);
    size_t n = MIN(text.n, p->title_room - 1);
    memset(p->title, 0, p->title_room);
    if (n) memcpy(p->title, text.p, n);
    buf_release(&text);
}

/* -- memory -------------------------------------------------------------------------------------------- */

#define OOM_FILE "/proc/self/oom_score_adj"

static bool read_score(int *score)
{
    FILE *f = fopen(OOM_FILE, "r");
    bool ok = f && fscanf(f, "%d", score) == 1;
    if (f) fclose(f);
    return ok;
}

static bool process_write_score(int score)
{
    char text[16];
    int n = snprintf(text, sizeof text, "%d", score), fd = open(OOM_FILE, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, (size_t)n) == n;
    int error = errno;
    if (fd >= 0) close(fd);
    errno = error;
    return ok;
}

/* The original value is remembered, so that `no` restores it and relative values always have the same
 * base. */
void process_apply_role(struct server *s)
{
    struct process *p = &s->process;
    const struct config *c = &s->config;
    bool wanted = strcmp(c->oom_score_adj.p, "no") != 0;
    if (!wanted && !p->oom_adjusted) return;
    bool known = p->oom_adjusted || read_score(&p->oom_before);
    int score = (int)c->oom_score_adj_values[replication_is_replica(&s->repl)];
    if (!wanted) score = p->oom_before;
    else if (strcmp(c->oom_score_adj.p, "absolute") != 0) score += p->oom_before;
    if (known && process_write_score(MAX(MIN(score, 1000), -1000))) p->oom_adjusted = wanted;
    else log_line(&s->log, LOG_WARNING, "Unable to set oom_score_adj to %d: %s", score, strerror(errno));
}

void process_start(struct server *s)
{
    if (s->config.disable_thp && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
        log_line(&s->log, LOG_WARNING, "Unable to disable THP for this process: %s", strerror(errno));
}

void process_apply_config(struct server *s)
{
    set_title(s);
    process_apply_role(s);
}
