#include "command/waiting.h"

#include <math.h>

#include "base/alloc.h"

/* The arguments as sent, with their bytes, behind the struct. */
static struct waiting *waiting_new(int argc, const bytes *argv)
{
    size_t n = 0;
    for (int i = 0; i < argc; i++) n += argv[i].n;
    struct waiting *w = mem_alloc(sizeof *w + (size_t)argc * sizeof *argv + n);
    *w = (struct waiting){.argc = argc, .argv = (bytes *)(void *)(w + 1)};
    char *to = (char *)(w->argv + argc);
    for (int i = 0; i < argc; i++) {
        memcpy(to, argv[i].p, argv[i].n);
        w->argv[i] = bytes_of(to, argv[i].n);
        to += argv[i].n;
    }
    return w;
}

void waiting_free(struct waiting *w) { mem_free(w); }

void ctx_wait(struct ctx *c, const bytes *argv, int first, int count, i64 timeout_ms, bool null_array)
{
    if (c->ready) return; /* it waits on */
    if (!c->may_wait) {
        if (null_array) reply_null_array(c->out);
        else reply_null(c->out);
        return;
    }
    struct waiting *w = c->waiting = waiting_new(c->argc, argv);
    w->first = first;
    w->count = count;
    w->null_array = null_array;
    if (timeout_ms) w->until_ms = c->now_ms + MIN(timeout_ms, INT64_MAX - c->now_ms);
}

bool ctx_timeout_s(struct ctx *c, bytes arg, i64 *out_ms)
{
    double s;
    if (!num_parse_double(arg, &s)) {
        reply_error(c->out, "ERR timeout is not a float or out of range");
        return false;
    }
    if (s < 0) {
        reply_error(c->out, "ERR timeout is negative");
        return false;
    }
    double ms = ceil(s * 1000);
    if (ms > (double)(INT64_MAX - c->now_ms)) {
        reply_error(c->out, "ERR timeout is out of range");
        return false;
    }
    *out_ms = (i64)ms;
    return true;
}
