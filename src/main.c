/* Wiring only: configuration, server, loop. */
#include <locale.h>
#include <stdio.h>

#include "base/alloc.h"
#include "server/import/import.h"
#include "server/server.h"
#include "server/usage.h"

#if MAYFLY_JEMALLOC
/* Free pages are returned to the kernel over about a second, so that a mass expiry shows in the RSS
 * (server/cron.c keeps it going). Not by jemalloc's own thread: on a busy or pinned core the scheduler would
 * let it delay the loop for milliseconds. Bigger slabs for small sizes: jemalloc never frees its slab
 * descriptors, and with the default of one page each they would be what remains of a million keys. No arena
 * for big blocks: memory freed there is returned at once, on the loop (mem_start()). */
const char *const malloc_conf = "dirty_decay_ms:1000,muzzy_decay_ms:0,narenas:2,slab_sizes:1-256:8,"
                                "oversize_threshold:0";
#endif

int main(int argc, char **argv)
{
    mem_start();
    struct server *s = mem_zalloc(sizeof *s);
    struct buf why = {0};
    int code = 1;
    setlocale(LC_COLLATE, ""); /* SORT ALPHA */
    if (usage_wanted(argc, argv, &code) || import_wanted(argc, argv, &code)) goto out;
    config_init(&s->config);
    if (!config_read_args(&s->config, argc, argv, &why)) {
        fprintf(stderr, "%.*s\n", (int)why.n, why.p);
        config_release(&s->config);
        goto out;
    }
    process_init(&s->process, argc, argv);
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
