#include "command/waiting.h"

#include <math.h>

#include "base/alloc.h"

/* The arguments as sent, with their bytes, after the struct. */
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

struct waiting *ctx_wait(struct ctx *c, enum value_type type, const bytes *argv, int first, int count,
                         i64 timeout_ms)
{
    if (c->ready) return NULL; /* it continues to wait */
    if (!c->may_wait) {
        reply_null_array(c->out);
        return NULL;
    }
    struct waiting *w = c->waiting = waiting_new(c->argc, argv);
    w->type = type;
    w->first = first;
    w->count = count;
    w->timeout_ms = timeout_ms;
    return w;
}

bool ctx_timeout_s(struct ctx *c, bytes arg, i64 *out_ms)
{
    long double s;
    if (!num_parse_long_double(arg, &s)) {
        reply_error(c->out, "ERR timeout is not a float or out of range");
        return false;
    }
    long double ms = ceill(s * 1000);
    if (ms <= (long double)(INT64_MAX - c->now_ms)) *out_ms = (i64)MAX(ms, -1);
    else *out_ms = INT64_MAX;
    return ctx_timeout_fits(c, *out_ms);
}
