/* Wiring only: configuration, server, loop. */
#include <locale.h>
#include <stdio.h>

#include "base/alloc.h"
#include "server/server.h"
#include "server/usage.h"

#if MAYFLY_JEMALLOC
/* Free pages go back to the kernel within about a second, from a thread of
 * jemalloc's own, so that a mass expiry shows in the RSS without costing the loop. */
const char *malloc_conf = "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0,narenas:2";
#endif

int main(int argc, char **argv)
{
    struct server *s = mem_zalloc(sizeof *s);
    struct buf why = {0};
    int code = 1;
    setlocale(LC_COLLATE, ""); /* SORT ALPHA */
    if (usage_wanted(argc, argv, &code)) goto out;
    config_init(&s->config);
    if (!config_read_args(&s->config, argc, argv, &why)) {
        fprintf(stderr, "%.*s\n", (int)why.n, why.p);
        config_release(&s->config);
        goto out;
    }
    if (server_start(s)) {
        server_run(s);
        code = s->exit_code;
        server_release(s);
    }
out:
    buf_release(&why);
    mem_free(s);
    return code;
}
